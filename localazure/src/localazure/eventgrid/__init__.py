"""Event Grid: topics, event subscriptions, filtered delivery with retries, dead-lettering."""
