"""What a step is to whatever measures it: a call that does the work and marks the end of each of its phases.

def step(mark: Callable[[], None]) -> None: ...
"""

from collections.abc import Callable

Step = Callable[[Callable[[], None]], None]
