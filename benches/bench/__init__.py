"""Benchmarks of evenkeel against its peers: a lab of namespaces, contenders in interleaved rounds, medians and ratios."""
