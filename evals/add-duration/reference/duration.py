"""Durations as text."""


def readable(seconds):
    if seconds < 0:
        raise ValueError("a duration is not negative")
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min {rest:02} s"
    if minutes:
        return f"{minutes} min {rest:02} s"
    return f"{rest} s"
