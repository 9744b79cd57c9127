"""A reader without a browser: asks the server for pages over its WebSocket and receives all that a browser would draw.

    with Visitor(address) as visitor:
        visit = visitor.open("training-step")        # visit.seconds, visit.size, visit.errors

The time that a browser then takes to draw is left out, because readers have machines of their own. Limits: images and
scripts, which a browser loads once and caches, are not requested.
"""

import json
import time
import urllib.request
from dataclasses import dataclass
from types import TracebackType

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One drawing of a page: the seconds until its last message, its bytes, and the errors on it."""

    seconds: float
    size: int
    errors: tuple[str, ...]


class Visitor:
    """One session of a reader."""

    def __init__(self, address: str) -> None:
        self.address, self.page = address, ""
        socket = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
        self.socket = connect(socket, subprotocols=["streamlit"], max_size=None)  # type: ignore[list-item]

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.socket.close()

    def open(self, page: str) -> Visit:
        """Goes to the page at this address and waits until it is drawn."""
        self.page = page
        return self.redraw()

    def redraw(self) -> Visit:
        """Draws the page again, as a page does when there are new rows."""
        request = BackMsg()
        request.rerun_script.page_name = self.page
        started, size, errors = time.perf_counter(), 0, list[str]()
        self.socket.send(request.SerializeToString())
        while True:
            data = self.socket.recv(timeout=PATIENCE_S)
            assert isinstance(data, bytes)
            size += len(data)
            message = ForwardMsg.FromString(data)
            element = message.delta.new_element
            if element.HasField("exception"):
                errors.append(element.exception.message)
            if element.HasField("heading") and element.heading.body == "busy":
                errors.append("busy")
            if message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY and message.HasField("script_finished"):
                return Visit(seconds=time.perf_counter() - started, size=size, errors=tuple(errors))

    def load_state(self) -> str:
        """Returns what a page asks for every two seconds: the states of the rows and of the plan."""
        with urllib.request.urlopen(f"{self.address}/api/v1/state", timeout=PATIENCE_S) as answer:
            found = json.load(answer)
        return f"{found['rows']} {found['plan']}"
