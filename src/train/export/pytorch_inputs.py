# The shape and the type of one sample of each input.
INPUTS = {@inputs@}
FEATURES = {@input_features@}
# The features of an input were standardised as (value - MEAN) * SCALE; absent if they were not standardised.
MEAN = {@input_means@}
SCALE = {@input_scales@}


def samples(data, device):
    """The samples of DATA: a dictionary of tensors by the names of the inputs."""
    return {name: data[f"x.{name}"].to(device, dtype) for name, (_, dtype) in INPUTS.items()}


def select(x, rows):
    return {name: value[rows] for name, value in x.items()}


def zeros(device):
    """One sample of zeros."""
    return {name: torch.zeros(1, *shape, dtype=dtype, device=device) for name, (shape, dtype) in INPUTS.items()}


def prepare(rows):
    """Converts raw samples to the network's inputs; both are dictionaries by the names of the inputs.
    The samples of DATA are already converted."""
    x = {}
    for name, (shape, dtype) in INPUTS.items():
        x[name] = torch.as_tensor(rows[name], dtype=dtype).reshape(-1, *shape)
        if name in MEAN:
            # In float64: with a large mean and a small deviation, float32 would lose significant digits.
            mean, scale = (torch.tensor(v[name], dtype=torch.float64).reshape(shape) for v in (MEAN, SCALE))
            x[name] = ((x[name].double() - mean) * scale).float()
    return x


def moved(x, device):
    return {name: value.to(device) for name, value in x.items()}
