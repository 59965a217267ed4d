# The shape and the type of one sample of each input.
INPUTS = {@inputs@}
FEATURES = {@input_features@}
# What the features of an input were standardised with: (value - MEAN) * SCALE; absent where they were not.
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
    """Samples as they stand in the data, as the network takes them: both are dictionaries by the names of the inputs.
    Those of DATA are prepared already."""
    x = {}
    for name, (shape, dtype) in INPUTS.items():
        x[name] = torch.as_tensor(rows[name], dtype=dtype).reshape(-1, *shape)
        if name in MEAN:
            # In float64, as the data were: a mean far from 0 would lose digits that count where the deviation is small.
            mean, scale = (torch.tensor(v[name], dtype=torch.float64).reshape(shape) for v in (MEAN, SCALE))
            x[name] = ((x[name].double() - mean) * scale).float()
    return x


def moved(x, device):
    return {name: value.to(device) for name, value in x.items()}
