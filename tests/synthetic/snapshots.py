"""Snapshots of CUDA's allocator, built event by event in the form that PyTorch documents."""

import pickle
from pathlib import Path
from typing import Any

HTML = "<img src=x onerror=\"document.title='owned'\">"


def frames(*names: str) -> list[dict[str, Any]]:
    return [{"filename": "/home/somebody/run/project/model.py", "name": name, "line": 7} for name in names]


def event(action: str, at_us: int, address: int = 0, size: int = 0, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at_us, **more}


def block(address: int, size: int, state: str, asked: int, **more: Any) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": asked, "state": state, **more}


def segment(address: int, *blocks: dict[str, Any]) -> dict[str, Any]:
    total = sum(item["size"] for item in blocks)
    return {"device": 0, "address": address, "total_size": total, "stream": 0, "segment_type": "small",
            "segment_pool_id": (0, 0), "allocated_size": 0, "active_size": 0, "blocks": list(blocks)}  # fmt: skip


#: A ring buffer that has lost its beginning, in the form that `torch.cuda.memory._snapshot` documents. 512 bytes at
#: 4,096 existed before and stay, and 300 at 5,120 existed before and are freed; the test explains the rest.
DOCUMENTED = {
    "segments": [
        segment(
            4096,
            block(4096, 512, "active_allocated", 500, frames=frames("embed")),
            block(4608, 512, "inactive", 0),
            block(5120, 1024, "active_allocated", 1000),
            block(6144, 512, "active_awaiting_free", 512),
            block(6656, 512, "active_pending_free", 512),
        )
    ],
    "device_traces": [
        [
            event("free_completed", 1_000_000, 5120, 300),  # its request and its allocation are lost
            event("segment_alloc", 1_000_005, 4096, 3072),
            event("alloc", 1_000_010, 5120, 1000, frames=frames("inner", "outer")),
            event("alloc", 1_000_020, 6144, 512, frames=frames(HTML)),
            event("alloc", 1_000_020, 6656, 512, frames=frames("inner", "outer")),
            event("snapshot", 1_000_025),
            event("oom", 1_000_030, size=2**40, device_free=1),
            event("free_requested", 1_000_040, 6144, 512, frames=frames("elsewhere")),
            event("free_requested", 1_000_050, 6656, 512),
            event("free_completed", 1_000_060, 6656, 512),
        ]
    ],
    "allocator_settings": {"expandable_segments": False},
}


def trace(*events: object) -> dict[str, Any]:
    """Returns a snapshot that has only one device's events."""
    return {"segments": [], "device_traces": [list(events)]}


def write(folder: Path, content: object) -> Path:
    path = folder / "their.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path
