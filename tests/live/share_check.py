"""Compares proportions of samples with the CPU time that the target measured. A proportion of n samples has a
sampling error: at 5 standard deviations, a correct profiler fails once in about two million comparisons. BIAS is the
systematic error that we allow in addition."""

DEVIATIONS = 5
BIAS = 0.03


def check_shares(counts, spent, samples, bias=BIAS):
    """`spent` has the CPU seconds per name, as the target measured them; `counts` has the samples (or their time)."""
    whole, total = sum(spent.values()), sum(counts[name] for name in spent)
    assert samples > 20 and total > 0, (counts, samples)
    for name, seconds in spent.items():
        share = seconds / whole
        allowed = bias + DEVIATIONS * (share * (1 - share) / samples) ** 0.5
        assert abs(counts[name] / total - share) <= allowed, (name, counts[name] / total, share, allowed, counts, spent)
