INPUT_SHAPE = [@shape@]
FEATURES = @feature_names@
# What the features were standardised with: (value - MEAN) * SCALE; None where they were not.
MEAN = @mean@
SCALE = @scale@


def samples(data, device):
    """The samples of DATA."""
    return data["x"].to(device)@cast@


def select(x, rows):
    return x[rows]


def zeros(device):
    """One sample of zeros."""
    return torch.zeros(1, *INPUT_SHAPE, @zeros_type@device=device)


def prepare(rows):
    """Samples as they stand in the data, as the network takes them. Those of DATA are prepared already."""
    x = torch.as_tensor(rows, dtype=@sample_type@).reshape(-1, *INPUT_SHAPE)
    if MEAN is None:
        return x
    # In float64, as the data were: a mean far from 0 would lose digits that count where the deviation is small.
    mean, scale = (torch.tensor(v, dtype=torch.float64).reshape(INPUT_SHAPE) for v in (MEAN, SCALE))
    return ((x.double() - mean) * scale).float()


def moved(x, device):
    return x.to(device)
