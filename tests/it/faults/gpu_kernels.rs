//! Faults in the kernels of a GPU that compute layers and losses: each is found where the kernel is compared with its
//! plain-loop reference.

use super::files::{ATTENTION_MMA, CONV, ELEMENTWISE, GEMM, LOSS, NORM, POOL, PRELUDE, SEQUENCE};
use super::gpu::{BLOCK, HALF_HEADS, HEADS, KernelFault, MANY, REFERENCES, TENSOR, WORDS, fault};
use super::recordings::PATHS;
use super::{CLASSES, IMAGES, VALUES};

const fn by_reference(name: &'static str, text: [&'static str; 3], networks: &'static [&'static str]) -> KernelFault {
    fault(name, text, networks, REFERENCES)
}

pub fn table() -> Vec<KernelFault> {
    [
        activations_and_random_numbers(),
        losses(),
        fused_and_squared_losses(),
        elementwise(),
        normalisations(),
        pools_and_convolutions(),
        products(),
        attention(),
        gradients_of_attention(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn activations_and_random_numbers() -> Vec<KernelFault> {
    vec![
        by_reference(
            "relu turns numbers round",
            [
                PRELUDE,
                "if constexpr (F == RELU) return x <= 0.0f ? 0.0f : x;",
                "if constexpr (F == RELU) return x <= 0.0f ? 0.0f : -x;",
            ],
            &[IMAGES, TENSOR, CLASSES],
        ),
        by_reference(
            "relu's derivative is one everywhere",
            [
                PRELUDE,
                "if constexpr (F == RELU) return s <= 0.0f ? 0.0f : 1.0f;",
                "if constexpr (F == RELU) return 1.0f;",
            ],
            &[IMAGES, TENSOR, CLASSES],
        ),
        by_reference(
            "a bias is subtracted",
            [PRELUDE, "if constexpr (BIAS) v += bias;", "if constexpr (BIAS) v -= bias;"],
            &[CLASSES, VALUES],
        ),
        by_reference(
            "a derivative is taken at the gradient",
            [PRELUDE, "v *= activate_grad<ACT_GRAD>(saved);", "v *= activate_grad<ACT_GRAD>(v);"],
            &[CLASSES, VALUES, IMAGES],
        ),
        by_reference(
            "random numbers have a round less",
            [PRELUDE, "for (int round = 0; round < 10; ++round)", "for (int round = 0; round < 9; ++round)"],
            &[CLASSES],
        ),
        by_reference(
            "every step has the same mask",
            [PRELUDE, "(u32)step, (u32)((u64)step >> 32)", "0u, (u32)((u64)step >> 32)"],
            &[CLASSES],
        ),
        by_reference(
            "sums over a warp leave out neighbours",
            [
                PRELUDE,
                "for (int mask = LANES / 2; mask > 0; mask >>= 1) v = R::of",
                "for (int mask = LANES / 2; mask > 1; mask >>= 1) v = R::of",
            ],
            &[CLASSES, VALUES, TENSOR],
        ),
    ]
}

fn losses() -> Vec<KernelFault> {
    vec![
        by_reference(
            "smoothed targets do not sum to one",
            [
                LOSS,
                "(float)(1.0 - smoothing() + smoothing() / classes()) : other",
                "(float)(1.0 - smoothing()) : other",
            ],
            &[CLASSES],
        ),
        by_reference(
            "a smoothed loss takes the whole of the label's score",
            [LOSS, "log_sum - keep() * own;", "log_sum - own;"],
            &[CLASSES],
        ),
        by_reference(
            "the accuracy counts one answer too many",
            [
                LOSS,
                "*a.at<float>(Slots::ACCURACY) = sums[1] / rows;",
                "*a.at<float>(Slots::ACCURACY) = (sums[1] + 1.0f) / rows;",
            ],
            &[MANY],
        ),
        by_reference(
            "a loss is the sum over the batch",
            [LOSS, "*a.at<float>(Slots::LOSS) = sums[0] / rows;", "*a.at<float>(Slots::LOSS) = sums[0];"],
            &[MANY],
        ),
    ]
}

fn fused_and_squared_losses() -> Vec<KernelFault> {
    vec![
        by_reference(
            "the fused classifier's gradient is of a sum",
            [
                LOSS,
                "(a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f) / (float)rows;\n        if (!early)",
                "(a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f);\n        if (!early)",
            ],
            &[TENSOR],
        ),
        by_reference(
            "the fused classifier's input gradient has the wrong sign",
            [LOSS, "dx = fmaf(grads[c], w[e][c], dx);", "dx = fmaf(-grads[c], w[e][c], dx);"],
            &[TENSOR],
        ),
        by_reference(
            "the fused classifier takes every answer for right",
            [
                LOSS,
                "a.at<float>(Slots::ROW_RIGHT)[row] = right ? 1.0f : 0.0f;",
                "a.at<float>(Slots::ROW_RIGHT)[row] = 1.0f;",
            ],
            &[TENSOR],
        ),
        by_reference(
            "the fused classifier lacks the last class",
            [
                LOSS,
                "for (int c = 0; c < CLASSES; ++c) share[c] = fmaf",
                "for (int c = 0; c < CLASSES - 1; ++c) share[c] = fmaf",
            ],
            &[TENSOR],
        ),
        by_reference(
            "a squared loss adds targets",
            [LOSS, "const float error = have - want;", "const float error = have + want;"],
            &[VALUES],
        ),
        by_reference(
            "a squared loss adds the targets at the tail",
            [LOSS, "each(to_float(y[at]), to_float(target[at]));", "each(to_float(y[at]), -to_float(target[at]));"],
            &[VALUES],
        ),
    ]
}

fn elementwise() -> Vec<KernelFault> {
    vec![
        by_reference(
            "what dropout keeps is not scaled",
            [ELEMENTWISE, "narrow<T>(to_float(in[piece].v[i]) * scale)", "narrow<T>(to_float(in[piece].v[i]))"],
            &[CLASSES],
        ),
        by_reference(
            "dropout's gradient is not scaled",
            [ELEMENTWISE, "narrow<T>(to_float(in.dy.v[i]) * scale)", "narrow<T>(to_float(in.dy.v[i]))"],
            &[CLASSES],
        ),
        by_reference(
            "a residual sum is a difference",
            [ELEMENTWISE, "combine(float a, float b) { return a + b; }", "combine(float a, float b) { return a - b; }"],
            &[CLASSES, IMAGES],
        ),
        by_reference(
            "a bias's gradient leaves out lanes",
            [
                PRELUDE,
                "for (int i = t / width; i < lanes; i += shared_by)",
                "for (int i = t / width + shared_by; i < lanes; i += shared_by)",
            ],
            &[CLASSES, VALUES, IMAGES],
        ),
        by_reference(
            "a bias's gradient does not wait for its lanes",
            [
                PRELUDE,
                "__syncthreads();\n    float* shares = partial + lanes * width;",
                "float* shares = partial + lanes * width;",
            ],
            &[CLASSES, VALUES, IMAGES],
        ),
    ]
}

fn normalisations() -> Vec<KernelFault> {
    vec![
        by_reference(
            "the running variance is of the biased one",
            [NORM, "take * (var[i] * unbiased)", "take * var[i]"],
            &[CLASSES, IMAGES],
        ),
        by_reference(
            "the momentum of running statistics is turned round",
            [NORM, "keep * mean_before[i] + take * mean[i]", "take * mean_before[i] + keep * mean[i]"],
            &[CLASSES, IMAGES],
        ),
        by_reference(
            "a batch's last row counts twice",
            [NORM, "if (EVEN || t.ty + r * TY < rows) sum[i] += d[r][i];", "sum[i] += d[r][i];"],
            &[IMAGES, CLASSES],
        ),
        by_reference(
            "gradients of scale and shift are the same",
            [
                NORM,
                "if (writes) {\n            norms::put_gradient(a, Slots::DGAMMA, t.channel, dgamma, sum + V);",
                "if (writes) {\n            norms::put_gradient(a, Slots::DGAMMA, t.channel, dgamma, sum);",
            ],
            &[CLASSES, IMAGES],
        ),
        by_reference(
            "a normalisation's gradient leaves the mean out",
            [NORM, "offset[i] = -gamma[i] * (sum[i] * (1.0f / (float)rows));", "offset[i] = 0.0f;"],
            &[CLASSES, IMAGES],
        ),
        by_reference(
            "a layer normalisation's gradient leaves the mean out",
            [NORM, "(g[n][i] - (RMS ? 0.0f : sum[0]) * (1.0f / (float)cols) -", "(g[n][i] -"],
            &[CLASSES],
        ),
        by_reference(
            "the gradient of a layer normalisation that only the second path has leaves the mean out",
            [NORM, "(g[n][i] - (RMS ? 0.0f : sum[0]) * (1.0f / (float)cols) -", "(g[n][i] -"],
            &[PATHS],
        ),
        by_reference(
            "a layer normalisation that only the second path has takes a sum for its mean",
            [
                NORM,
                "rsqrtf(square[0] * (1.0f / (float)cols) + (float)norms::real_number<EPS, 2>(a));",
                "rsqrtf(square[0] + (float)norms::real_number<EPS, 2>(a));",
            ],
            &[PATHS],
        ),
    ]
}

fn pools_and_convolutions() -> Vec<KernelFault> {
    vec![
        by_reference(
            "a maximum's place is off by one",
            [POOL, "where[i] = better ? k : where[i];", "where[i] = better ? k + 1 : where[i];"],
            &[IMAGES],
        ),
        by_reference(
            "a mean is divided by one too many",
            [POOL, "(1.0f / S::SIZE)", "(1.0f / (S::SIZE + 1))"],
            &[IMAGES],
        ),
        by_reference(
            "pooling's gradient leaves out a column of windows",
            [POOL, "ky < S::KH && kx < S::KW;", "ky < S::KH && kx + 1 < S::KW;"],
            &[IMAGES],
        ),
        by_reference(
            "a whole image's mean lacks a pixel",
            [POOL, "if (pixel < end) {", "if (pixel + 1 < end) {"],
            &[IMAGES],
        ),
        by_reference(
            "the gradient of a whole image's mean is a sum's",
            [POOL, "narrow<T>(to_float(v[i].v[j]) * (1.0f / (float)hw))", "narrow<T>(to_float(v[i].v[j]))"],
            &[IMAGES],
        ),
        by_reference("padding is one too few", [CONV, "axis.origin = -P,", "axis.origin = 1 - P,"], &[IMAGES]),
        by_reference(
            "dilation is left out",
            [CONV, "OFFSET_STEP = FORWARD ? D :", "OFFSET_STEP = FORWARD ? 1 :"],
            &[IMAGES],
        ),
        by_reference(
            "a filter's gradient is not summed over its splits",
            [
                CONV,
                "for (int v = 0; v < V; ++v) sum[v] += part.v[v];",
                "for (int v = 0; v < V; ++v) sum[v] = part.v[v];",
            ],
            &[IMAGES],
        ),
    ]
}

fn products() -> Vec<KernelFault> {
    vec![
        by_reference(
            "a product's bias is that of its first column",
            [GEMM, "b = bias[i];", "b = bias[0];"],
            &[CLASSES, TENSOR, VALUES],
        ),
        by_reference(
            "a shared weight's gradients are subtracted",
            [GEMM, "if constexpr (ACC) v += previous[i];", "if constexpr (ACC) v -= previous[i];"],
            &[VALUES],
        ),
        by_reference(
            "groups of a product are subtracted",
            [GEMM, "part[0].v[v] += part[k].v[v];", "part[0].v[v] -= part[k].v[v];"],
            &[TENSOR],
        ),
        by_reference(
            "a weight's fused step takes the gradient's opposite",
            [GEMM, "rule.step(param.v[i], g, s0.v[i], s1.v[i]);", "rule.step(param.v[i], -g, s0.v[i], s1.v[i]);"],
            &[TENSOR],
        ),
        by_reference(
            "a tile's metrics are counted for each of its parts",
            [GEMM, "parts[r * wide + c] = i == 0 ? all : UpdatePart{0u, 0.0f};", "parts[r * wide + c] = all;"],
            &[TENSOR],
        ),
        by_reference(
            "a fused bias's step lacks rows",
            [ELEMENTWISE, "for (int w = 1; w < WARPS; ++w) {", "for (int w = 2; w < WARPS; ++w) {"],
            &[TENSOR],
        ),
    ]
}

fn attention() -> Vec<KernelFault> {
    vec![
        by_reference(
            "attention does not fade what it has added",
            [ATTENTION_MMA, "out[n][2 * r] *= fade, out[n][2 * r + 1] *= fade;", "out[n][2 * r] *= 1.0f;"],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "attention sees one position of the future",
            [ATTENTION_MMA, "key > query + v / 2 * 8))", "key > query + v / 2 * 8 + 1))"],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "half of what attention drops is another's",
            [ATTENTION_MMA, "(bits >> v & 1) == 0 ? 0.0f : term;", "(bits & 1) == 0 ? 0.0f : term;"],
            &[HEADS],
        ),
        by_reference(
            "attention divides all rows by the sum of one",
            [ATTENTION_MMA, "top, out, by[0], by[1],", "top, out, by[0], by[0],"],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "even and odd columns of weights change places",
            [ATTENTION_MMA, "to_tf32(w[k][2]), to_tf32(w[k][1]),", "to_tf32(w[k][1]), to_tf32(w[k][2]),"],
            &[HEADS],
        ),
        by_reference(
            "pairs of weights change places",
            [PRELUDE, "cvt.rn.bf16x2.f32 %0, %1, %2;", "cvt.rn.bf16x2.f32 %0, %2, %1;"],
            &[HALF_HEADS],
        ),
        by_reference(
            "attention's pairs are turned the other way",
            [ATTENTION_MMA, "narrow<T>(u * by.x - v * by.y);", "narrow<T>(u * by.x + v * by.y);"],
            &[HEADS],
        ),
    ]
}

fn gradients_of_attention() -> Vec<KernelFault> {
    vec![
        by_reference(
            "rows of a table take the gradient of their neighbours",
            [SEQUENCE, "sums + listed[begin + j] % EACH * UNITS;", "sums + (listed[begin + j] + 1) % EACH * UNITS;"],
            &[WORDS],
        ),
        by_reference(
            "a layer normalisation's gradient leaves out what goes around its block",
            [
                NORM,
                "for (int i = 0; i < V; ++i) g[n][i] += normal[n][i];",
                "for (int i = 0; i < V; ++i) g[n][i] += 0.0f;",
            ],
            &[BLOCK],
        ),
        by_reference(
            "a product adds what is where its result goes",
            [
                GEMM,
                "load<Out, V>(a.at<Out>(slots::product::C_PREV) + at);",
                "load<Out, V>(a.at<Out>(slots::product::C) + at);",
            ],
            &[BLOCK],
        ),
        by_reference(
            "the gradient of scores lacks what the softmax takes off",
            [ATTENTION_MMA, "(d[j][v] * by - less[query]);", "(d[j][v] * by);"],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "sums of dy y have the wrong sign",
            [
                ATTENTION_MMA,
                "sum += to_float(dy.v[i]) * to_float(y.v[i]);",
                "sum -= to_float(dy.v[i]) * to_float(y.v[i]);",
            ],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "gradients of queries and keys are sums of others",
            [ATTENTION_MMA, "M::add_products(dx1, d, tile1 + sub", "M::add_products(dx1, d, tile2 + sub"],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "the gradient of values takes the scores' gradient",
            [ATTENTION_MMA, "M::add_products(dx2, s, tile2 + sub", "M::add_products(dx2, d, tile2 + sub"],
            &[HEADS, HALF_HEADS],
        ),
        by_reference(
            "gradients of pairs are not turned back",
            [ATTENTION_MMA, "(is_first ? other : -other) * by.y;", "(is_first ? -other : other) * by.y;"],
            &[HEADS],
        ),
        by_reference(
            "a key sees what its next query does",
            [ATTENTION_MMA, "(KEYS ? mine <= its :", "(KEYS ? mine <= its + 1 :"],
            &[HEADS, HALF_HEADS],
        ),
    ]
}
