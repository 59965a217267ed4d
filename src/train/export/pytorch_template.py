#!/usr/bin/env python3
"""@title@, rebuilt in PyTorch from Stepgraph.

Needs torch and safetensors. Parameters have the names of the preset.

    python this.py             evaluates the exported weights
    python this.py --train     continues training from them, on the same samples
    python this.py --train --fresh     trains from PyTorch's own initial weights
"""

import argparse
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

NAME = @name@
WEIGHTS = @weights@
DATA = @data@
BATCH = @batch@
STEPS = @steps@
SEED = @seed@
CLASSES = @class_names@
# The type of products and activations on a GPU; None for float32.
PRECISION = @precision@
HERE = pathlib.Path(__file__).resolve().parent
torch.set_float32_matmul_precision("@matmul@")
@notes@@samples@

def leaky_relu(x):
    return F.leaky_relu(x, 0.01)


class Dense(nn.Linear):
    def __init__(self, inputs, units, bias, activation):
        super().__init__(inputs, units, bias=bias)
        self.activation = activation

    def forward(self, x):
        y = super().forward(x)
        return y if self.activation is None else self.activation(y)


@tied_class@class Conv2d(nn.Conv2d):
    def __init__(self, *sizes, activation, **settings):
        super().__init__(*sizes, **settings)
        self.activation = activation

    def forward(self, x):
        y = super().forward(x)
        return y if self.activation is None else self.activation(y)


class Attention(nn.Module):
    def __init__(self, width, heads, causal, kv_heads, rotary, bias, dropout):
        super().__init__()
        self.heads, self.causal, self.kv_heads, self.rotary, self.dropout = heads, causal, kv_heads, rotary, dropout
        packed = width + 2 * width // heads * kv_heads
        self.in_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(width, packed)))
        self.in_bias = nn.Parameter(torch.zeros(packed)) if bias else None
        self.out_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(width, width)))
        self.out_bias = nn.Parameter(torch.zeros(width)) if bias else None

    def turned(self, x):
        positions, half = x.shape[2], x.shape[3] // 2
        rates = 10000 ** (torch.arange(half, dtype=torch.float64, device=x.device) / -half)
        angles = torch.arange(positions, dtype=torch.float64, device=x.device)[:, None] * rates
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def forward(self, x):
        x = F.linear(x, self.in_weight.T, self.in_bias)
        samples, positions, packed = x.shape
        size = packed // (self.heads + 2 * self.kv_heads)
        q, k, v = x.view(samples, positions, -1, size).transpose(1, 2).split(
            (self.heads, self.kv_heads, self.kv_heads), dim=1
        )
        if self.rotary:
            q, k = self.turned(q), self.turned(k)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        return F.linear(y.transpose(1, 2).flatten(2), self.out_weight.T, self.out_bias)


class Recurrent:
    """Returns the state at every position, or the final state of each direction."""

    def __init__(self, *sizes, last, **settings):
        super().__init__(*sizes, batch_first=True, **settings)
        self.last = last

    def forward(self, x):
        states, final = super().forward(x)
        final = final[0] if isinstance(final, tuple) else final
        return final.transpose(0, 1).flatten(1) if self.last else states


class RNN(Recurrent, nn.RNN):
    pass


class GRU(Recurrent, nn.GRU):
    pass


class LSTM(Recurrent, nn.LSTM):
    pass


class Conv1d(nn.Conv1d):
    """Works on [N, T, C]."""

    def __init__(self, *sizes, pad, activation, **settings):
        super().__init__(*sizes, **settings)
        self.pad = pad
        self.activation = activation

    def forward(self, x):
        y = super().forward(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2)
        return y if self.activation is None else self.activation(y)


class OverPositions(nn.Module):
    """Applies a module for [N, C, T] to [N, T, C]."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x.transpose(1, 2)).transpose(1, 2)


class Positions(nn.Module):
    def __init__(self, positions, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(positions, features) * features**-0.5)

    def forward(self, x):
        return x + self.weight


class Sinusoids(nn.Module):
    def __init__(self, positions, features):
        super().__init__()
        column = torch.arange(features)
        turn = 10000.0 ** (-(column - column % 2).double() / features)
        angle = torch.arange(positions).double()[:, None] * turn
        table = torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return x + self.table


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Block(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Residual(Block):
    def forward(self, x):
        return x + super().forward(x)


class Repeat(Block):
    def __init__(self, times, layers):
        super().__init__(layers)
        self.times = times

    def forward(self, x):
        for _ in range(self.times):
            x = super().forward(x)
        return x


@parallel_classes@@choosing_classes@def build():
    net = @network@([
@layers@    ])
@ties@    return net


def tensors(net):
    """Every tensor by its name in the preset; PyTorch's recurrent layers add the number of the layer to theirs."""
    recurrent = tuple(name for name, module in net.named_modules() if isinstance(module, nn.RNNBase))
    named = net.state_dict().items()
    return {n.replace("_l0", "") if n.rpartition(".")[0] in recurrent else n: value for n, value in named}


def dense_weights(net):
    """Names of the weights that PyTorch stores transposed: [units, in] instead of [in, units]."""
    dense = {f"{name}.weight" for name, module in net.named_modules() if isinstance(module, nn.Linear)}
    return dense | {name for name in tensors(net) if name.rpartition(".")[2].startswith(("weight_ih", "weight_hh"))}


def load_weights(net, path):
    own, transposed = tensors(net), dense_weights(net)
    given = load_file(path)
    missing = [name for name in own if name not in given and not name.endswith("num_batches_tracked")]
    assert not missing, f"{path} lacks {missing}"
    with torch.no_grad():
        for name, value in given.items():
            own[name].copy_(value.T if name in transposed else value)


def save_weights(net, path):
    transposed = dense_weights(net)
    state = {n: v for n, v in tensors(net).items() if not n.endswith("num_batches_tracked")}
    save_file({n: (v.T if n in transposed else v).detach().cpu().contiguous() for n, v in state.items()}, path)


def loss_of(output, y):
    return @loss@


def answer(net, rows):
    """@answers@; rows are as `prepare` takes them."""
    net.eval()
    with torch.no_grad():
        output = net(moved(prepare(rows), next(net.parameters()).device))
@answer@


def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        output = net(x)
        loss = @plain_loss@.item()
        accuracy = @accuracy@
    net.train()
    return loss, accuracy


@optimizer_class@@schedule@def train(net, device, x, y, steps):
    optimizer = @optimizer@
    scaler = torch.amp.GradScaler(device.type, enabled=PRECISION == torch.float16)
    order = torch.Generator().manual_seed(SEED)
    net.train()
    step = 0
@seen@    while step < steps:
        for chosen in torch.randperm(len(y), generator=order).split(BATCH):
            if len(chosen) < BATCH or step == steps:
                break
@choice@            with torch.autocast(device.type, dtype=PRECISION, enabled=PRECISION is not None):
                output = net(select(x, chosen))
                loss = loss_of(output.float(), y[chosen])
@zero@            scaler.scale(loss@share@).backward()
@whole@@rate@@clip@            scaler.step(optimizer)
            scaler.update()
            step += 1
            if step % 100 == 0 or step == steps:
                print(f"step {step}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=NAME)
    parser.add_argument("--train", action="store_true", help="train on the data beside this script")
    parser.add_argument("--fresh", action="store_true", help="begin with PyTorch's own initial weights")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--save", help="write the weights to this safetensors file")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = build().to(device)
    if not args.fresh:
        load_weights(net, HERE / WEIGHTS)
    if DATA is None:
        print(f"{NAME}: no data was exported; output for zeros:", net.eval()(zeros(device)))
        return
    data = load_file(HERE / DATA)
    x, y = samples(data, device), data["y"]@targets@.to(device)
    training, held_out = data["train"].long(), data["held_out"].long()
    if args.train:
        train(net, device, select(x, training), y[training], args.steps)
    part = held_out if len(held_out) else training
    loss, accuracy = evaluate(net, select(x, part), y[part])
    shown = "" if accuracy is None else f", accuracy {accuracy:.4f}"
    print(f"{NAME}: {@evaluated@ if len(held_out) else 'training'} loss {loss:.6f}{shown}")
    if args.save:
        save_weights(net, args.save)


if __name__ == "__main__":
    main()
