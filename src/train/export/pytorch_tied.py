class Tied(nn.Module):
    """A dense layer whose weight [units, in] is that of an embedding."""

    def __init__(self, inputs, units, bias, activation):
        super().__init__()
        self.sizes = (units, inputs)
        self.bias = nn.Parameter(torch.zeros(units)) if bias else None
        self.activation = activation

    def tie(self, embedding):
        assert embedding.weight.shape == self.sizes
        # With PyTorch's default deviation of 1, outputs would be as large as the root of the number of inputs.
        nn.init.normal_(embedding.weight, std=self.sizes[1] ** -0.5)
        # In a list, the embedding is not a submodule of this module, so that its weight is named and counted once.
        self.embedding = [embedding]

    def forward(self, x):
        y = F.linear(x, self.embedding[0].weight, self.bias)
        return y if self.activation is None else self.activation(y)
