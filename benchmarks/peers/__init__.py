"""`make bench-peers`: durable storage of conversations in other frameworks, beside ours.

A peer is one small file here with the interface of `peer.py`. `__main__.py` runs each in processes
of its own, in turns; `worker.py` is such a process.
"""
