"""Effects of the loop: call a model, run tools, record results, finish."""
