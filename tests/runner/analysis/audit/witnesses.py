"""For each rule, a report in which it must find something, and a corrected version in which it must find nothing.

Shapes are those of the assignment: small is 768 wide with 12 blocks and 128,625,408 parameters, 514.5 MB in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Witness:
    """Tables by name. `known` is what the report says about itself; `lines` are the affected lines by table."""

    bad: Mapping[str, str]
    clean: Mapping[str, str]
    lines: Mapping[str, tuple[int, ...]]
    known: Mapping[str, str] = field(default_factory=dict)
    known_clean: Mapping[str, str] = field(default_factory=dict)
    severity: str = "doubt"


def one(bad: str, clean: str, *lines: int, severity: str = "doubt", **known: str) -> Witness:
    """Returns a witness with a report of one table."""
    return Witness(
        bad={"t": bad}, clean={"t": clean}, lines={"t": lines}, known=known, known_clean=known, severity=severity
    )


_PHASES = "model_size,forward_mean_ms,forward_std_ms,backward_mean_ms,backward_std_ms\n"
_BOTH = _PHASES.strip() + ",forward_backward_mean_ms,forward_backward_std_ms\n"
_PLAIN = "model_size,context_length,forward_mean_ms,backward_mean_ms\n"
_ATTENTION = "seq_len,d_head,forward_mean_ms,backward_mean_ms,peak_memory_mib\n"
_PEAK = "model_size,mode,peak_memory_mib\n"

WITNESSES: Mapping[str, Witness] = {
    # Small at 256 tokens, batch 4: 257 GFLOP forward. That takes 13.2 ms at 19.5 TFLOP/s in fp32, and 1.6 ms in TF32.
    "tf32_as_fp32": one(
        "model_size,dtype,forward_mean_ms\nsmall,float32,5.0",
        "model_size,dtype,forward_mean_ms\nsmall,float32,25.0\nsmall,bf16,5.0",
        2,
        severity="fault",
    ),
    # 257 GFLOP in 0.5 ms are 514 TFLOP/s, where the peak is 312.
    "above_peak": one(
        "model_size,dtype,forward_mean_ms\nsmall,bf16,0.5",
        "model_size,dtype,forward_mean_ms\nsmall,bf16,2.5",
        2,
        severity="fault",
    ),
    # 25 ms written as 0.025 ms, which is 10 PFLOP/s.
    "wrong_unit": one(
        "model_size,forward_mean_ms,backward_mean_ms\nsmall,0.025,0.05",
        "model_size,forward_mean_ms,backward_mean_ms\nsmall,25,50",
        2,
        severity="fault",
    ),
    "swapped_axes": one(
        "seq_len,d_head,forward_mean_ms\n16,1024,1.0\n32,2048,9.0\n64,4096,40",
        "seq_len,d_head,forward_mean_ms\n1024,16,1.0\n2048,32,9.0\n4096,64,40",
        2,
        3,
        4,
    ),
    # 75 - 25 = 50 ms with a spread of the root of 0.6² + 0.8² = 1; timed within the step, it has less spread than the
    # step.
    "subtraction": one(_BOTH + "small,25,0.6,50,1.0,75,0.8", _BOTH + "small,25,0.3,50,0.5,75,0.6", 2),
    "impossible_ratio": one(_PLAIN + "small,256,25,-3", _PLAIN + "small,256,25,50", 2, severity="fault"),
    "spilled": one(
        _PLAIN + "2.7B,256,200,36000", _PLAIN + "2.7B,256,200,400", 2, severity="fault", machine="A10 24 GB"
    ),
    "unsynchronized": Witness(
        bad={"t": _PLAIN + "small,256,25,50"},
        clean={"t": _PLAIN + "small,256,25,50"},
        lines={"t": (2,)},
        known={"clock": "wall clock; not synchronized before backward"},
    ),
    "range_ended_early": Witness(
        bad={
            "ranges": "nvtx_range,duration_us\nscores,100",
            "kernels": "context,time_pct,total_time,instances,name\nscores,50,300 us,1,gemm",
        },
        clean={
            "ranges": "nvtx_range,duration_us\nscores,700",
            "kernels": "context,time_pct,total_time,instances,name\nscores,50,300 us,1,gemm",
        },
        lines={"ranges": (2,)},
        severity="fault",
    ),
    # Nine steps of 20 ms and one of 120: the mean is 30, the population std 30, and 30 - 30/3 = 20.
    "cold_step": one(_PHASES + "small,30,30,50,0.5", _PHASES + "small,30,2,50,0.5", 2),
    "wide_spread": one(
        "seq_len,d_head,forward_mean_ms,forward_std_ms\n1024,64,10,5",
        "seq_len,d_head,forward_mean_ms,forward_std_ms\n1024,64,10,1",
        2,
    ),
    "rounded_std": one(_PHASES + "small,25,0.0,50,0.5", _PHASES + "small,25,0.1,50,0.5", 2),
    # 256 tokens need 6 squares of 2 MiB; three squares of 4,096 tokens take 1,536 MiB.
    "peak_carried_over": one(
        _ATTENTION + "4096,64,9,18,2700\n256,64,0.2,0.5,1549",
        _ATTENTION + "4096,64,9,18,2700\n256,64,0.2,0.5,13",
        3,
        severity="fault",
    ),
    "zero_bytes": one(_PEAK + "small,forward,0", _PEAK + "small,forward,900", 2, severity="fault"),
    "negative_bytes": one(
        "seq_len,d_head,fwd_mem_mib,back_mem_mib\n1024,64,96,-3",
        "seq_len,d_head,fwd_mem_mib,back_mem_mib\n1024,64,96,64",
        2,
    ),
    "below_parameters": one(_PEAK + "small,forward,400", _PEAK + "small,forward,600", 2, severity="fault"),
    # 16 bytes a parameter are 1,963 MiB for 128,625,408 parameters.
    "no_optimizer_state": one(_PEAK + "small,train,1500", _PEAK + "small,train,2600", 2, severity="fault"),
    # Forward and backward peak at 2,000 MiB and the moments take 981: 2,981 from the second step on.
    "first_step_recorded": one(
        _PEAK + "small,backward,2000\nsmall,train,2100", _PEAK + "small,backward,2000\nsmall,train,2990", 3
    ),
    "unstated_memory": Witness(
        bad={"t": "model_size,memory_mib\nsmall,900"},
        clean={"t": "model_size,peak_allocated_mib\nsmall,900"},
        lines={"t": (2,)},
        known={"memory_means": ""},
        known_clean={"memory_means": ""},
        severity="note",
    ),
    "no_effect": one(
        "model_size,dtype,peak_memory_mib\nsmall,float32,900.5\nsmall,bf16,900.5",
        "model_size,dtype,peak_memory_mib\nsmall,float32,900.5\nsmall,bf16,760.25",
        3,
        severity="fault",
    ),
    "compiler_fallback": Witness(
        bad={
            "t": "model_size,compile,forward_mean_ms,backward_mean_ms\nsmall,False,25,50\nmedium,False,60,120\n"
            "large,False,130,260\nsmall,True,15,40\nmedium,True,40,90\nlarge,True,130,260"
        },
        clean={
            "t": "model_size,compile,forward_mean_ms,backward_mean_ms\nsmall,False,25,50\nmedium,False,60,120\n"
            "large,False,130,260\nsmall,True,15,40\nmedium,True,40,90\nlarge,True,90,200"
        },
        lines={"t": (7,)},
    ),
    "cold_beside_warm": one(
        "model_size,compile,forward_mean_ms,forward_std_ms\nsmall,False,25,0.3\nsmall,True,30,30",
        "model_size,compile,forward_mean_ms,forward_std_ms\nsmall,False,25,0.3\nsmall,True,20,0.3",
        3,
    ),
    "profiled_beside_unprofiled": one(
        "model_size,profiled,forward_mean_ms\nsmall,False,25\nsmall,True,40",
        "model_size,profiled,forward_mean_ms\nsmall,True,25\nmedium,True,60",
        3,
    ),
    "duplicate_key": one(
        _PLAIN + "small,256,25,50\nsmall,256,35,50", _PLAIN + "small,256,25,50\nsmall,512,55,110", 2, 3
    ),
    "not_reproducible": Witness(
        bad={"a": _PLAIN + "small,256,25,50", "b": _PLAIN + "small,256,40,80"},
        clean={"a": _PLAIN + "small,256,25,50", "b": _PLAIN + "small,256,26,52"},
        lines={"a": (2,), "b": (2,)},
    ),
    "ratio_off": one(
        "model_size,fp32_forward_ms,bf16_forward_ms,speedup\nsmall,30,20,1.9",
        "model_size,fp32_forward_ms,bf16_forward_ms,speedup\nsmall,30,20,1.5",
        2,
    ),
    "unstated_key": one("forward_mean_ms,backward_mean_ms\n25,50", _PLAIN + "small,256,25,50", 2, severity="note"),
    "lost_key": one(
        "model_size,d_model,d_ff,num_layers,num_heads,forward_mean_ms,status\nsmall,768,3072,12,12,25,ok\n2.7B,nan,nan,nan,nan,OOM,OOM",
        "model_size,d_model,d_ff,num_layers,num_heads,forward_mean_ms,status\nsmall,768,3072,12,12,25,ok\n2.7B,2560,10240,32,32,OOM,OOM",
        3,
    ),
    "wrong_parameters": one(
        "model_size,params,forward_mean_ms\nsmall,423M,25",
        "model_size,params,forward_mean_ms\nsmall,128M,25",
        2,
        severity="fault",
    ),
    "unknown_size": one(
        "model_size,params,forward_mean_ms\nmine,2.36B,90",
        "model_size,params,forward_mean_ms\nmine,3.41B,90",
        2,
        severity="note",
    ),
    "ambiguous_size": one(_PLAIN + "xl,256,90,180", _PLAIN + "xl,256,90,180\n2.7B,256,120,240", 2, severity="note"),
    "contradicting_settings": one(
        "model_size,warmup_steps,cmd_warmup_steps,forward_mean_ms\nsmall,5,0,25",
        "model_size,warmup_steps,cmd_warmup_steps,forward_mean_ms\nsmall,5,5,25",
        2,
        severity="note",
    ),
    "launch_bound": one(
        _PLAIN + "small,128,30,60\nsmall,256,30,61", _PLAIN + "small,128,30,60\nsmall,256,58,115", 2, 3, severity="note"
    ),
    "time_not_monotonic": one(
        _PLAIN + "small,128,90,180\nsmall,256,30,60", _PLAIN + "small,128,16,32\nsmall,256,30,60", 2, 3
    ),
    "bytes_not_monotonic": one(
        _ATTENTION + "1024,64,1,2,300\n2048,64,3,6,200", _ATTENTION + "1024,64,1,2,150\n2048,64,3,6,500", 2
    ),
    "wrong_accumulation": one("case,result\nfloat16,10.0001", "case,result\nfloat16,9.9531", 2, severity="fault"),
    "wrong_dtype": one(
        "component,dtype\nlayer norm,FP16\nlogits,FP16",
        "component,dtype\nlayer norm,FP32\nlogits,FP16",
        2,
        severity="fault",
    ),
}
