"""What a reader of a published table can do about a finding, by its code.

    PUBLISHED_REMEDIES["cold_step"]  ->  "Read the steady value, …"

A table that is printed cannot be measured again: these say how to read it, and what to ask of its authors. A test
compares the codes with those of the rules. Standard library only.
"""

from collections.abc import Mapping

PUBLISHED_REMEDIES: Mapping[str, str] = {
    "above_peak": "Do not use this rate: check which precision ran, and whether the clock waited for the device.",
    "ambiguous_size": "Ask for the numbers of the shape before comparing; a name alone means two models.",
    "below_parameters": "Do not use this peak: it is another counter's, or another model's.",
    "bytes_not_monotonic": "Use the other rows; this one counts bytes that are not its own.",
    "cold_beside_warm": "Compare the steady value with the warm one, or leave the pair out.",
    "cold_step": "Read the steady value in place of the mean, or ask for the median and each step's time.",
    "compiler_fallback": "Do not read these rows as compiled; ask for the compiler's log of recompilations.",
    "contradicting_settings": "Trust the row only as far as its figures bear it out; ask which of the two was run.",
    "duplicate_key": "Ask what differed between the two rows; until then use neither.",
    "first_step_recorded": "Add the bytes of the optimizer's moments, or measure the second step.",
    "impossible_ratio": "Do not use these times; measure forward and backward within one warm step.",
    "launch_bound": "Nothing is wrong with the rows. Do not conclude that a longer context is free.",
    "lost_key": "Look the shape up by the row's name, if its edition is known.",
    "negative_bytes": "Use the columns that the difference was made of.",
    "no_effect": "Do not read this pair as a comparison of the option.",
    "no_optimizer_state": "Do not read this as the peak of a training step; measure from the second step on.",
    "not_reproducible": "Use neither figure for a ratio smaller than the one between them.",
    "peak_carried_over": "Take away the bytes of the row before, or measure each cell in a process of its own.",
    "profiled_beside_unprofiled": "Compare profiled rows with profiled ones alone.",
    "range_ended_early": "Use the kernels' times on the device in place of the range's.",
    "ratio_off": "Work the ratio out again from its two times.",
    "rounded_std": "Treat the spread as unknown.",
    "spilled": "Do not use these times: the cell does not fit the machine.",
    "subtraction": "Use forward and the sum, which were measured; backward is their difference, cold steps included.",
    "swapped_axes": "Read the two axes in each other's place only if the bytes agree; compare with no other grid.",
    "tf32_as_fp32": "Read these rows as TF32, and the speedup of half precision over them as that over TF32.",
    "time_not_monotonic": "Use neither of the two rows.",
    "unknown_size": "Leave it out of a trend by size, or state its shape.",
    "unstated_key": "Compare its rows with each other alone.",
    "unstated_memory": "Ask which counter it is before comparing it with a peak.",
    "unsynchronized": "Use the sum of the phases, not each of them.",
    "wide_spread": "Ask for the median; compare nothing smaller than the spread.",
    "wrong_accumulation": "Do not use it: the arithmetic gives another number.",
    "wrong_dtype": "Do not use it: read the dtypes from a run.",
    "wrong_parameters": "Find out which shape was run before using any figure of the row.",
    "wrong_unit": "Read the row in the other unit, if the report bears it out.",
    "zero_bytes": "Treat the bytes as unknown.",
}
