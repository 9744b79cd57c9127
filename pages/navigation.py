"""The pages there are, in the order of the navigation."""

from pages.attention import page as attention
from pages.compare import page as compare
from pages.data import page as data
from pages.explore import page as explore
from pages.kernels import page as kernels
from pages.memory_timeline import page as memory_timeline
from pages.mixed_precision import page as mixed_precision
from pages.overview import page as overview
from pages.peak_memory import page as peak_memory
from pages.published import page as published
from pages.report import page as report
from pages.roofline import page as roofline
from pages.sql import page as sql
from pages.torch_compile import page as torch_compile
from pages.training_step import page as training_step
from pages.trust import page as trust
from pages.ui.frame import Page

#: Section -> pages. The first page opens without an address.
NAVIGATION: dict[str, list[Page]] = {
    "": [overview.PAGE],
    "Experiments": [
        training_step.PAGE,
        mixed_precision.PAGE,
        torch_compile.PAGE,
        kernels.PAGE,
        roofline.PAGE,
        explore.PAGE,
    ],
    "Memory": [attention.PAGE, peak_memory.PAGE, memory_timeline.PAGE],
    "Side by side": [compare.PAGE, published.PAGE],
    "File": [report.PAGE, trust.PAGE, data.PAGE, sql.PAGE],
}
#: Every page by its address.
PAGES: dict[str, Page] = {page.address: page for pages in NAVIGATION.values() for page in pages}
#: A session that holds an address under this key of its state begins on that page, as by a link. A page that is a
#: function has no other way for whoever runs the dashboard without a server.
OPEN = "open"
