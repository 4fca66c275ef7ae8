"""What the headings of tables say about the machine."""
import os, platform, time


def loop_seconds():
    """Seconds of a fixed piece of work, the shortest of three: virtual machines of one kind differ, and so does one from day to day."""
    def once():
        began = time.perf_counter()
        for _ in range(5_000_000):
            pass
        return time.perf_counter() - began
    return min(once() for _ in range(3))


def described_machine():
    """The machine with its speed."""
    return (f"{os.cpu_count()} processors shared with the servers (5 million steps of a Python loop: {loop_seconds():.2f} s), "
            f"{platform.system()} {platform.release()}")
