"""Messages with media and option calls, their builders, and conversion to events."""
