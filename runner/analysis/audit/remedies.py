"""What to do about a finding, by its code: the text that `runner audit` and the page Trust show.

    REMEDIES["cold_step"]  ->  "Warm up longer, such as `--warmup 10`, and measure again with `--fresh`."

A test compares the codes with those of the rules. Standard library only.
"""

from collections.abc import Mapping

REMEDIES: Mapping[str, str] = {
    "above_peak": "Do not use this rate. Check the precision and the device that were used, and whether the timing "
    "ended before the device did.",
    "busy_machine": "Close what else is running, or wait for it, and measure again with `--fresh`.",
    "cold_step": "Warm up longer, such as `--warmup 10`, and measure again with `--fresh`.",
    "compiler_fallback": "Look at the compiler's own messages with `TORCH_LOGS=graph_breaks,recompiles`, repair the "
    "frame that it gave up on, and measure again. Until then, this is an eager time.",
    "drifting": "Let the machine come to a steady temperature and load, lock the clocks where that is allowed, and "
    "measure again with `--rounds 3 --fresh`, which shows whether the drift comes back.",
    "impossible_ratio": "Do not use these times. Time forward and backward inside one warm step, and measure again.",
    "launch_bound": "Nothing is wrong with the row. To make the step faster, start fewer operations: a compiled "
    "backend, `cuda-graphs`, or a larger batch.",
    "machine_drift": "Let the machine come to a steady temperature and load, and measure these cells again with "
    "`--fresh`; do not compare them with cells from before or after the change.",
    "no_effect": "Check that the option reaches the computation: the autocast region, the compiled module, the "
    "implementation that was chosen. Do not read this pair as a speedup.",
    "not_by_formula": "Do not use these parts. Check that the model has the shape that the row names, and that a whole "
    "step, with its optimizer, came before the measurement.",
    "leaks_memory": "Look for what the model or the loss keeps of each step: a list of outputs, a buffer that grows, a "
    "tensor with its graph. `runner sweep --experiment memory --timeline` shows what is never freed.",
    "other_speed": "Nothing is wrong with the row; its interval reaches up to the slower speed. Compare such cells by "
    "their device time, or measure all of them in several rounds: `--rounds 5`.",
    "page_faults": "Nothing is wrong with the row. Tensors of more than 32 MiB come from the system in each step; "
    "smaller ones do not, unless the environment sets `MALLOC_MMAP_THRESHOLD_` or `MALLOC_TRIM_THRESHOLD_`: unset both "
    "and measure again with `--fresh`.",
    "peak_carried_over": "Do not use this peak. Measure the cell in a process of its own, or reset the peak before it.",
    "phases_do_not_add": "Use the time of the whole step; look for work between the phases, such as logging or copies.",
    "prediction_off": "The measurement stands. Do not plan with the predicted bytes of this kind of cell.",
    "recompiled": "Make shapes and flags constant across steps, or warm up until every graph is compiled, and measure "
    "again; `TORCH_LOGS=recompiles` names the guard that failed.",
    "shared_gpu": "Wait until the other process has left the GPU (`nvidia-smi` names it), and measure again with "
    "`--fresh`.",
    "spilled": "Do not use these times. Make the cell smaller, or switch off the driver's fallback to system memory, "
    "so that it runs out of memory instead.",
    "swapped_axes": "Check the order of the axes: attention takes (…, sequence, head width).",
    "tf32_as_fp32": "Do not use this as fp32. Ask for `tf32`, or set the float32 matmul precision to `highest`, and "
    "measure again.",
    "throttled": "Give the GPU more cooling or power, or lock its clocks below the limit, and measure again with "
    "`--fresh`.",
    "too_few_samples": "Measure more steps, such as `--steps 10 --max-seconds 10`.",
    "unexpected_out_of_memory": "Free the device of other processes, and measure again with `--fresh`.",
    "unexplained": "Use the peak, not its parts; a recorded timeline (`--timeline`) shows what the rest is.",
    "wide_interval": "Measure longer, such as `--max-steps 1000 --max-seconds 10`, or on a quieter machine.",
    "wrong_result": "Do not use this time: it is that of another computation. Report the shape with the versions of "
    "torch and driver, and choose another implementation or backend.",
}
