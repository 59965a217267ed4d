def random_word(seed, stream, step):
    """The random number that Stepgraph uses: Philox4x32-10 of seed, stream and step."""
    c, k = [0, stream, step & 0xFFFFFFFF, step >> 32], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        even, odd = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [odd >> 32 ^ c[1] ^ k[0], odd & 0xFFFFFFFF, even >> 32 ^ c[3] ^ k[1], even & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


class Choice:
    # The current step, counted from 1.
    step = 1

    def __init__(self, layer, by, values, evaluation):
        self.layer, self.by, self.values, self.evaluation = layer, by, values, evaluation

    def value(self, training):
        if not training:
            return self.evaluation
        if self.by == "cycle":
            return self.values[(Choice.step - 1) % len(self.values)]
        if self.by == "schedule":
            return [value for first, value in self.values if first <= Choice.step][-1]
        wanted = random_word(SEED, 2**31 + self.layer, Choice.step) / 2**32 * sum(self.values)
        total = 0.0
        for value, weight in enumerate(self.values):
            total += weight
            if wanted < total:
                return value
        return max(value for value, weight in enumerate(self.values) if weight > 0)


class Exit(Exception):
    """Raised to end a step early with this output."""


class Branch(nn.Module):
    def __init__(self, choice, paths):
        super().__init__()
        self.choice = choice
        self.paths = nn.ModuleList(nn.ModuleList(path) for path in paths)

    def forward(self, x):
        for layer in self.paths[self.choice.value(self.training)]:
            x = layer(x)
        return x


class EarlyExit(Block):
    def __init__(self, choice, layers):
        super().__init__(layers)
        self.choice = choice

    def forward(self, x):
        if self.choice.value(self.training):
            raise Exit(super().forward(x))
        return x


class ChosenResidual(Block):
    def __init__(self, choice, keep, layers):
        super().__init__(layers)
        self.choice, self.keep = choice, keep

    def forward(self, x):
        if not self.choice.value(self.training):
            return x
        y = super().forward(x)
        return x + (y / self.keep if self.training else y)


class ChosenRepeat(Block):
    def __init__(self, choice, layers):
        super().__init__(layers)
        self.choice = choice

    def forward(self, x):
        for _ in range(self.choice.value(self.training)):
            x = super().forward(x)
        return x


class Choosing(@network@):
    def forward(self, x):
        try:
            return super().forward(x)
        except Exit as end:
            return end.args[0]
