INPUT_SHAPE = [@shape@]
FEATURES = @feature_names@
# Features were standardised as (value - MEAN) * SCALE; None if they were not standardised.
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
    """Converts raw samples to the network's inputs. The samples of DATA are already converted."""
    x = torch.as_tensor(rows, dtype=@sample_type@).reshape(-1, *INPUT_SHAPE)
    if MEAN is None:
        return x
    # In float64: with a large mean and a small deviation, float32 would lose significant digits.
    mean, scale = (torch.tensor(v, dtype=torch.float64).reshape(INPUT_SHAPE) for v in (MEAN, SCALE))
    return ((x.double() - mean) * scale).float()


def moved(x, device):
    return x.to(device)
