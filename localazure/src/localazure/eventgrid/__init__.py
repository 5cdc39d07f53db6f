"""Event Grid: topics, event subscriptions, filtered delivery with retries, dead-lettering."""

from localazure.eventgrid.service import serve

__all__ = ["serve"]
