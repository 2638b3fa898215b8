"""The time-travel page: built files that the HTTP server gives out. Its sources are in ui/."""

from turnledger.adapters.web.page import Page as Page

__all__ = ["Page"]
