// Recurrent layers: the loop of one direction over the positions, forward and backward.
//
// The input part of all gates is computed in advance. The rest is, at each position, the product of the previous state
// with the weight, and the functions of the gates. There are three implementations, each forward and backward:
//
// `Recurrence`      a block has some samples, and reads the weight from memory at every position. For any size.
// `RecurrenceHeld`  a block has some samples, and its threads hold the whole weight in registers.
// `RecurrenceGrid`  each block has some units, whose part of the weight is in shared memory or registers; blocks
//                   synchronise at every position, so that all of them must be resident.
//
// All sums have a fixed order, without atomics on floats, so that the bits are the same in every run.

enum Cell { CELL_TANH = 0, CELL_RELU = 1, CELL_GRU = 2, CELL_LSTM = 3 };

// The values that one position passes to the next one, or back to the one before: the hidden state and the cell state
// of a unit of a sample, or the gradients of both.
struct Carried { float state, inner; };

// Samples, positions and units of a layer: constants, or the numbers 0 to 2. The flags of a `Walk` are constants with
// them, or the lowest bits of number 3.
template <int BATCH, int LEN, int UNITS, bool REVERSE, bool BOTH, bool LAST> struct WalkSizes {
    static constexpr int batch = BATCH, len = LEN, units = UNITS;
    static constexpr bool reverse = REVERSE, both = BOTH, last = LAST;
    __device__ __forceinline__ constexpr explicit WalkSizes(const Args&) {}
};
template <bool REVERSE, bool BOTH, bool LAST>
struct WalkSizes<(int)ANY, (int)ANY, (int)ANY, REVERSE, BOTH, LAST> {
    int batch, len, units;
    bool reverse, both, last;
    __device__ __forceinline__ explicit WalkSizes(const Args& a)
        : batch((int)Number<ANY, 0>(a)), len((int)Number<ANY, 1>(a)), units((int)Number<ANY, 2>(a)) {
        const i64 flags = Number<ANY, 3>(a);
        reverse = flags & 1, both = flags & 2, last = flags & 4;
    }
};

#define STEP __device__ __forceinline__

// One direction of a layer. Rows of the input are [BATCH, LEN]; BOTH: the layer is bidirectional, and the outputs of
// both directions are concatenated; LAST: the output is only the final state. Everything is computed in floats; T is
// the type in memory.
template <class T_, int CELL_, int BATCH_, int LEN_, int UNITS_, bool REVERSE, bool BOTH, bool LAST>
struct Walk : WalkSizes<BATCH_, LEN_, UNITS_, REVERSE, BOTH, LAST> {
    using T = T_;
    using Sizes = WalkSizes<BATCH_, LEN_, UNITS_, REVERSE, BOTH, LAST>;
    using Sizes::both;
    using Sizes::last;
    using Sizes::len;
    using Sizes::reverse;
    using Sizes::Sizes;
    using Sizes::units;
    // The sizes that the kernel is compiled for.
    static constexpr int CELL = CELL_, BATCH = BATCH_, LEN = LEN_, UNITS = UNITS_;
    static constexpr int G = CELL == CELL_LSTM ? 4 : CELL == CELL_GRU ? 3 : 1, WIDE = G * UNITS;
    static constexpr bool KEEPS_INNER = CELL >= CELL_GRU, HAS_HIDDEN = CELL == CELL_GRU;
    using Fwd = slots::recurrence;
    using Bwd = slots::recurrence_bwd;

    // Values of the gates of a position; whether the outputs of both directions are concatenated here, and the first
    // output of this direction.
    STEP constexpr int wide() const { return G * units; }
    STEP constexpr bool joins() const { return both && reverse; }
    STEP constexpr int first_output() const { return joins() ? units : 0; }
    // The row of a sample after this many steps.
    STEP i64 row(int sample, int step) const { return (i64)sample * len + (reverse ? len - 1 - step : step); }

    // ---- forward: slots of `recurrence`

    // The input part of a unit's gates.
    STEP void load_input(const Args& a, int sample, int step, int u, float (&x)[G]) const {
        const T* from = a.at<T>(Fwd::X) + row(sample, step) * wide() + u;
#pragma unroll
        for (int g = 0; g < G; ++g) x[g] = to_float(from[g * units]);
    }
    STEP void load_bias(const Args& a, int u, float (&bias)[G]) const {
#pragma unroll
        for (int g = 0; g < G; ++g) bias[g] = a.at<float>(Fwd::BIAS)[g * units + u];
    }
    template <int F> STEP float gate(T* gates, int g, float v) const {
        v = activate<F, T>(v);
        gates[g * units] = narrow<T>(v);
        return v;
    }
    // Applies the functions of a unit's gates, where `product` is the part of the state without the bias, and stores
    // all results.
    STEP void advance(const Args& a, int sample, int step, int u, const float (&x)[G], const float (&bias)[G],
        const float (&product)[G], Carried& carried) const {
        const i64 at = row(sample, step);
        T* gates = a.at<T>(Fwd::GATES) + at * wide() + u;
        float full[G], now = 0.0f;
#pragma unroll
        for (int g = 0; g < G; ++g) full[g] = x[g] + (product[g] + bias[g]);
        if constexpr (CELL == CELL_TANH) now = gate<TANH>(gates, 0, full[0]);
        if constexpr (CELL == CELL_RELU) now = gate<RELU>(gates, 0, full[0]);
        if constexpr (CELL == CELL_GRU) {
            const float r = gate<SIGMOID>(gates, 0, full[0]), z = gate<SIGMOID>(gates, 1, full[1]);
            const float inner = product[2] + bias[2];
            a.at<T>(Fwd::INNER)[at * units + u] = narrow<T>(inner);
            const float n = gate<TANH>(gates, 2, fmaf(r, inner, x[2]));
            now = fmaf(z, carried.state, (1.0f - z) * n);
        }
        if constexpr (CELL == CELL_LSTM) {
            const float i = gate<SIGMOID>(gates, 0, full[0]), f = gate<SIGMOID>(gates, 1, full[1]);
            const float g = gate<TANH>(gates, 2, full[2]), o = gate<SIGMOID>(gates, 3, full[3]);
            const float c = step == 0 ? i * g : fmaf(f, carried.inner, i * g);
            a.at<T>(Fwd::INNER)[at * units + u] = narrow<T>(c);
            carried.inner = c;
            now = o * activate<TANH, T>(c);
        }
        const T stored = narrow<T>(now);
        carried.state = to_float(stored);
        T* before = a.at<T>(Fwd::BEFORE);
        if (step == 0) before[at * units + u] = narrow<T>(0.0f);
        if (step + 1 < len) before[row(sample, step + 1) * units + u] = stored;
        if (last && step + 1 < len) return;
        const i64 out = last ? sample : at;
        T* y = a.at<T>(Fwd::Y) + out * (first_output() + units);
        y[first_output() + u] = stored;
        if (joins()) y[u] = a.at<T>(Fwd::OTHER)[out * units + u];
    }

    // ---- backward: slots of `recurrence_bwd`

    // The inputs of a unit's gradients at a step.
    struct Saved { float gate[G], inner, previous, before, dy; };

    STEP Saved load_saved(const Args& a, int sample, int step, int u) const {
        const i64 at = row(sample, step);
        Saved s{};
        const T* gates = a.at<T>(Bwd::GATES) + at * wide() + u;
#pragma unroll
        for (int g = 0; g < G; ++g) s.gate[g] = to_float(gates[g * units]);
        if constexpr (KEEPS_INNER) s.inner = to_float(a.at<T>(Bwd::INNER)[at * units + u]);
        if constexpr (CELL == CELL_LSTM) {
            if (step > 0) s.previous = to_float(a.at<T>(Bwd::INNER)[row(sample, step - 1) * units + u]);
        }
        if constexpr (HAS_HIDDEN) s.before = to_float(a.at<T>(Bwd::BEFORE)[at * units + u]);
        if (!last || step + 1 == len)
            s.dy = to_float(a.at<T>(Bwd::DY)[(last ? sample : at) * (both ? 2 * units : units) + first_output() + u]);
        return s;
    }
    // Stores the gradients of a unit's gates; `hidden` are those that pass through the product. `carried` keeps the
    // gradients for the preceding step, to which the product is added later.
    STEP void retreat(
        const Args& a, int sample, int step, int u, const Saved& s, Carried& carried, float (&hidden)[G]) const {
        const float dh = carried.state + s.dy;
        carried.state = 0.0f;
        float input[G];
        if constexpr (CELL == CELL_TANH) input[0] = dh * activate_grad<TANH, T>(s.gate[0]);
        if constexpr (CELL == CELL_RELU) input[0] = dh * activate_grad<RELU, T>(s.gate[0]);
        if constexpr (CELL == CELL_GRU) {
            const float r = s.gate[0], z = s.gate[1], n = s.gate[2];
            input[1] = dh * (s.before - n) * activate_grad<SIGMOID, T>(z);
            input[2] = dh * (1.0f - z) * activate_grad<TANH, T>(n);
            input[0] = input[2] * s.inner * activate_grad<SIGMOID, T>(r);
            carried.state = dh * z;
        }
        if constexpr (CELL == CELL_LSTM) {
            const float i = s.gate[0], f = s.gate[1], g = s.gate[2], o = s.gate[3], c = activate<TANH, T>(s.inner);
            const float dc = fmaf(dh * o, activate_grad<TANH, T>(c), carried.inner);
            input[0] = dc * g * activate_grad<SIGMOID, T>(i);
            input[1] = step == 0 ? 0.0f : dc * s.previous * activate_grad<SIGMOID, T>(f);
            input[2] = dc * i * activate_grad<TANH, T>(g);
            input[3] = dh * c * activate_grad<SIGMOID, T>(o);
            carried.inner = dc * f;
        }
        const i64 at = row(sample, step) * wide() + u;
#pragma unroll
        for (int g = 0; g < G; ++g) {
            hidden[g] = input[g];
            if constexpr (HAS_HIDDEN) {
                if (g == 2) hidden[g] *= s.gate[0];
                a.at<T>(Bwd::DHIDDEN)[at + g * units] = narrow<T>(hidden[g]);
            }
            a.at<T>(Bwd::DX)[at + g * units] = narrow<T>(input[g]);
        }
    }
};

// ---------------------------------------- a block reads the weight from memory

// The common part of the forward and the backward pass.
template <class Shape, int EACH, int THREADS_> struct RecurrenceFromMemory : Shape {
    static constexpr int PHASES = 1, THREADS = THREADS_;
    static constexpr i64 WORK = 8ll * Shape::BATCH * Shape::UNITS;
    static constexpr int blocks(int) { return ceil_div(Shape::BATCH, EACH); }
    static constexpr int smem(int) { return 0; }
};

// Slots and results of `recurrence`; S is a `Walk`. A block has EACH samples, a thread every THREADS_-th unit. Work
// holds the values that one position passes to the next. Reads the weight, WIDE * UNITS * 4 bytes, once for each block
// and position.
template <class S, int EACH, int THREADS_> struct Recurrence : RecurrenceFromMemory<S, EACH, THREADS_> {
    using T = typename S::T;
    using Fwd = slots::recurrence;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const int first = block * EACH, count = min_i(EACH, S::BATCH - first);
        const float* weight = a.at<float>(Fwd::WEIGHT);
        for (int step = 0; step < S::LEN; ++step) {
            for (int u = threadIdx.x; u < S::UNITS; u += THREADS_) {
                float sum[EACH][S::G], bias[S::G];
                s.load_bias(a, u, bias);
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
#pragma unroll
                    for (int g = 0; g < S::G; ++g) sum[e][g] = 0.0f;
                }
                if (step > 0) products(a, weight, first, count, step, u, sum);
                // The index of a sample must be a compile-time constant, so that its sums stay in registers.
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    if (e >= count) break;
                    Carried* carried = a.at<Carried>(Fwd::WORK) + (i64)(first + e) * S::UNITS + u;
                    Carried own = step == 0 ? Carried{0.0f, 0.0f} : *carried;
                    float x[S::G];
                    s.load_input(a, first + e, step, u, x);
                    s.advance(a, first + e, step, u, x, bias, sum[e], own);
                    *carried = own;
                }
            }
            __syncthreads();
        }
    }
    DEV void products(const Args& a, const float* weight, int first, int count, int step, int u,
        float (&sum)[EACH][S::G]) {
        const S s(a);
        const T* before[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            before[e] = a.at<T>(Fwd::BEFORE) + s.row(first + min_i(e, count - 1), step) * S::UNITS;
#pragma unroll 4
        for (int k = 0; k < S::UNITS; ++k) {
            float w[S::G];
#pragma unroll
            for (int g = 0; g < S::G; ++g) w[g] = weight[(i64)k * S::WIDE + g * S::UNITS + u];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const float h = to_float(before[e][k]);
#pragma unroll
                for (int g = 0; g < S::G; ++g) sum[e][g] = fmaf(h, w[g], sum[e][g]);
            }
        }
    }
};

// Slots and results of `recurrence_bwd`; otherwise like `Recurrence`. A warp computes the product of one unit at a
// time.
template <class S, int EACH, int THREADS_> struct RecurrenceBwd : RecurrenceFromMemory<S, EACH, THREADS_> {
    using T = typename S::T;
    using Bwd = slots::recurrence_bwd;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const int first = block * EACH, count = min_i(EACH, S::BATCH - first);
        Carried* carried = a.at<Carried>(Bwd::WORK) + (i64)first * S::UNITS;
        for (int step = S::LEN - 1; step >= 0; --step) {
            for (int u = threadIdx.x; u < S::UNITS; u += THREADS_) {
                for (int e = 0; e < count; ++e) {
                    Carried* at = carried + (i64)e * S::UNITS + u;
                    Carried own = step + 1 == S::LEN ? Carried{0.0f, 0.0f} : *at;
                    float hidden[S::G];
                    s.retreat(a, first + e, step, u, s.load_saved(a, first + e, step, u), own, hidden);
                    *at = own;
                }
            }
            __syncthreads();
            if (step > 0) products(a, carried, first, count, step);
            __syncthreads();
        }
    }
    // Adds the gradients through the product to the gradients of the states.
    DEV void products(const Args& a, Carried* carried, int first, int count, int step) {
        const S s(a);
        const T* hidden[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            hidden[e] = a.at<T>(S::HAS_HIDDEN ? (int)Bwd::DHIDDEN : (int)Bwd::DX) +
                s.row(first + min_i(e, count - 1), step) * S::WIDE;
        const int lane = threadIdx.x % 32;
        for (int k = threadIdx.x / 32; k < S::UNITS; k += THREADS_ / 32) {
            const float* weight = a.at<float>(Bwd::WEIGHT) + (i64)k * S::WIDE;
            float sum[EACH];
#pragma unroll
            for (int e = 0; e < EACH; ++e) sum[e] = 0.0f;
#pragma unroll 2
            for (int col = lane; col < S::WIDE; col += 32) {
                const float w = weight[col];
#pragma unroll
                for (int e = 0; e < EACH; ++e) sum[e] = fmaf(to_float(hidden[e][col]), w, sum[e]);
            }
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                sum[e] = warp_reduce<Sum>(sum[e]);
                if (lane == 0 && e < count) carried[(i64)e * S::UNITS + k].state += sum[e];
            }
        }
    }
};

// ---------------------------------------- threads hold the weight

// Adds the products of each sample's values and the weights of this thread to the N sums of the sample: `weight`
// returns the weight of a value and a sum. A thread has QUADS groups of four values, every SLICES-th.
template <int QUADS, int SLICES, int EACH, int N, class Weight>
DEV void add_held(float (&sum)[EACH][N], const float* values, int stride, int slice, const Weight& weight) {
#pragma unroll
    for (int j = 0; j < QUADS; ++j) {
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const Vec<float, 4> v = load<float, 4>(values + e * stride + (slice + j * SLICES) * 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int n = 0; n < N; ++n) sum[e][n] = fmaf(v.v[i], weight(j * 4 + i, n), sum[e][n]);
            }
        }
    }
}

// Slots and results of `recurrence`; Shape is a `Walk`. A block has EACH samples. It has threads for every unit and
// SLICES slices of the states (groups of 4 states, distributed in turn), and each thread holds the weights of its
// slice. States are in shared memory, double-buffered, so that a position has one barrier. Reads the weight once for
// each block. A general member is compiled for the threads and for QUADS, the groups of states of a slice; both may be
// rounded up.
template <class S, int SLICES, int EACH, int THREADS_ = ceil_div(S::UNITS * SLICES, 32) * 32,
    int QUADS = ceil_div(S::UNITS, 4 * SLICES)>
struct RecurrenceHeld {
    using T = typename S::T;
    using Fwd = slots::recurrence;
    static constexpr int PHASES = 1, THREADS = THREADS_, G = S::G, STATES = 4 * QUADS * SLICES;
    // The number of samples for which a thread computes the functions.
    static constexpr int TURNS = ceil_div(EACH, SLICES), MIN_BLOCKS = 1;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return ceil_div(S::BATCH, EACH); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(S(a).batch, EACH); }
    static constexpr int smem(int) { return 4 * 2 * EACH * STATES; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const S s(a);
        const int slice = threadIdx.x % SLICES, u = min_i(threadIdx.x / SLICES, s.units - 1);
        const bool is_there = (int)threadIdx.x / SLICES < s.units;
        float* states = (float*)smem;
        for (int i = threadIdx.x; i < 2 * EACH * STATES; i += THREADS) states[i] = 0.0f;
        float w[QUADS * 4][G], bias[G];
#pragma unroll
        for (int j = 0; j < QUADS; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int k = (slice + j * SLICES) * 4 + i;
#pragma unroll
                for (int g = 0; g < G; ++g)
                    w[j * 4 + i][g] = k < s.units ? a.at<float>(Fwd::WEIGHT)[k * s.wide() + g * s.units + u] : 0.0f;
            }
        }
        s.load_bias(a, u, bias);
        // Lane `slice` of a unit has the samples slice + i * SLICES of the block.
        bool own[TURNS];
        Carried carried[TURNS];
        float x[TURNS][G];
#pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const int e = slice + i * SLICES;
            own[i] = is_there && e < EACH && block * EACH + e < s.batch;
            carried[i] = Carried{0.0f, 0.0f};
            if (own[i]) s.load_input(a, block * EACH + e, 0, u, x[i]);
        }
        __syncthreads();
        for (int step = 0; step < s.len; ++step) {
            const float* now = states + step % 2 * EACH * STATES;
            float* next = states + (step + 1) % 2 * EACH * STATES;
            // The input of the next position is loaded at the same time.
            float coming[TURNS][G];
#pragma unroll
            for (int i = 0; i < TURNS; ++i) {
                const int e = slice + i * SLICES;
                if (own[i] && step + 1 < s.len) s.load_input(a, block * EACH + e, step + 1, u, coming[i]);
            }
            float sum[EACH][G];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
#pragma unroll
                for (int g = 0; g < G; ++g) sum[e][g] = 0.0f;
            }
            if (step > 0) {
                add_held<QUADS, SLICES>(
                    sum, now, STATES, slice, [&](int k, int g) { return w[k][g]; });
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
#pragma unroll
                    for (int g = 0; g < G; ++g) sum[e][g] = warp_reduce<Sum, SLICES>(sum[e][g]);
                }
            }
#pragma unroll
            for (int i = 0; i < TURNS; ++i) {
                float product[G];
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    product[g] = 0.0f;
#pragma unroll
                    for (int e = 0; e < SLICES && i * SLICES + e < EACH; ++e)
                        product[g] = e == slice ? sum[i * SLICES + e][g] : product[g];
                }
                const int e = slice + i * SLICES;
                if (own[i]) {
                    s.advance(a, block * EACH + e, step, u, x[i], bias, product, carried[i]);
                    next[e * STATES + u] = carried[i].state;
                }
#pragma unroll
                for (int g = 0; g < G; ++g) x[i][g] = coming[i][g];
            }
            __syncthreads();
        }
    }
};

// Slots and results of `recurrence_bwd`; otherwise like `RecurrenceHeld`, with the transposed weight: a thread has UT
// units and one of SLICES slices of the gates' values (groups of 4 values, distributed in turn). The sums of a group of
// SLICES lanes are distributed over its lanes, so that each lane has one unit; COPIES lanes have the same unit and
// divide the samples.
template <class S, int UT, int SLICES, int EACH, int THREADS_ = ceil_div(ceil_div(S::UNITS, UT) * SLICES, 32) * 32,
    int QUADS = ceil_div(S::WIDE, 4 * SLICES)>
struct RecurrenceHeldBwd {
    using T = typename S::T;
    using Bwd = slots::recurrence_bwd;
    static constexpr int PHASES = 1, THREADS = THREADS_, G = S::G, VALUES = 4 * QUADS * SLICES, COPIES = SLICES / UT;
    static constexpr int TURNS = ceil_div(EACH, COPIES), MIN_BLOCKS = 1;
    static constexpr i64 WORK = 0;
    static_assert(SLICES % UT == 0 && (UT & (UT - 1)) == 0 && (SLICES & (SLICES - 1)) == 0, "powers of two");
    static constexpr int blocks(int) { return ceil_div(S::BATCH, EACH); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(S(a).batch, EACH); }
    static constexpr int smem(int) { return 4 * 2 * EACH * VALUES; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const S s(a);
        const int slice = threadIdx.x % SLICES, base = (int)threadIdx.x / SLICES * UT, u = base + slice / COPIES;
        float* values = (float*)smem;
        for (int i = threadIdx.x; i < 2 * EACH * VALUES; i += THREADS) values[i] = 0.0f;
        float w[UT][QUADS * 4];
#pragma unroll
        for (int t = 0; t < UT; ++t) {
#pragma unroll
            for (int j = 0; j < QUADS; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int col = (slice + j * SLICES) * 4 + i;
                    const bool valid = base + t < s.units && col < s.wide();
                    w[t][j * 4 + i] = valid ? a.at<float>(Bwd::WEIGHT)[(base + t) * s.wide() + col] : 0.0f;
                }
            }
        }
        bool own[TURNS];
        Carried carried[TURNS];
        typename S::Saved saved[TURNS];
#pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const int e = slice % COPIES + i * COPIES;
            own[i] = u < s.units && e < EACH && block * EACH + e < s.batch;
            carried[i] = Carried{0.0f, 0.0f};
            if (own[i]) saved[i] = s.load_saved(a, block * EACH + e, s.len - 1, u);
        }
        __syncthreads();
        for (int step = s.len - 1; step >= 0; --step) {
            float* now = values + step % 2 * EACH * VALUES;
#pragma unroll
            for (int i = 0; i < TURNS; ++i) {
                const int e = slice % COPIES + i * COPIES;
                if (!own[i]) continue;
                float hidden[G];
                s.retreat(a, block * EACH + e, step, u, saved[i], carried[i], hidden);
#pragma unroll
                for (int g = 0; g < G; ++g) now[e * VALUES + g * s.units + u] = hidden[g];
                // The inputs of the preceding position are loaded at the same time.
                if (step > 0) saved[i] = s.load_saved(a, block * EACH + e, step - 1, u);
            }
            if (step == 0) break;
            __syncthreads();
            float sum[EACH][UT];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
#pragma unroll
                for (int t = 0; t < UT; ++t) sum[e][t] = 0.0f;
            }
            add_held<QUADS, SLICES>(sum, now, VALUES, slice, [&](int k, int t) { return w[t][k]; });
            float all[EACH];
#pragma unroll
            for (int e = 0; e < EACH; ++e) all[e] = spread_reduce<Sum, UT, SLICES / 2>(sum[e]);
#pragma unroll
            for (int i = 0; i < TURNS; ++i) {
#pragma unroll
                for (int e = 0; e < COPIES && i * COPIES + e < EACH; ++e)
                    carried[i].state += e == slice % COPIES ? all[i * COPIES + e] : 0.0f;
            }
        }
    }
};

// ---------------------------------------- each block has its own units

// Increments the counter for a block. Everything that its threads wrote before the preceding barrier is visible to
// threads that read the new count.
DEV void count_in(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
DEV u32 counted_in(const u32* counter) {
    u32 count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}

// The tiles of a grid: groups of blocks have TILES * 16 samples each, and the blocks of a group UB units each.
// Blocks of a group synchronise through counters in the work memory, which a preceding launch sets to zero, so that a
// failed step cannot leave wrong counts. MMA: factors are rounded to TF32 and multiplied by matrix instructions; this
// does not change 16-bit values. A general member reads how many units a block has, at most UB. It has memory for ROOM
// states, and copies V of them at once.
template <class Shape, bool MMA_, int UB_, int TILES_, int ROOM> struct GridTiles : Shape {
    using S = Shape;
    static constexpr bool MMA = MMA_;
    static constexpr int UB = UB_, TILES = TILES_, G = S::G, THREADS = 512, WARPS = THREADS / 32, STATES = ROOM;
    static constexpr bool IS_GENERAL = S::UNITS == (int)ANY;
    using By = typename DivisorOf<!IS_GENERAL>::Type;
    // The most gate values of a block: a multiple of the size of a matrix instruction.
    static constexpr int COLS = ceil_div(G * UB, 8) * 8;
    static constexpr int EACH = ceil_div(16 * UB, THREADS), TURNS = EACH * TILES;
    // Bytes of a group's counter, before the rest of the work memory.
    static constexpr int COUNTER = 128;
    // The smallest row length from `least` on that is an odd multiple of `step`, so that the simultaneous reads of a
    // warp are in different banks: `step` is 4 if factors are read along the depth, and 8 if they are read across it.
    static constexpr int pitch(int least, int step) { return (least + step - 1) / (2 * step) * (2 * step) + step; }
    // Whether a thread of a specialised member, which has 128 registers, holds so many weights beside other numbers.
    static constexpr bool has_registers(int weights, int others) {
        return MMA && !IS_GENERAL && weights <= 64 && weights + others <= 96;
    }
    // Groups of blocks, and states and gate values of a block with `own` units, which are multiples of the size of a
    // matrix instruction.
    DEV constexpr int groups(int batch) { return ceil_div(batch, 16 * TILES); }
    DEV constexpr int states(int units) { return ceil_div(units, 8) * 8; }
    DEV constexpr int columns(int own) { return ceil_div(G * own, 8) * 8; }
    // Units of a block.
    DEV int own_units(const Args& a) { return (int)Number<ANY, 4>(a); }
    static constexpr int blocks(int phase) { return phase == 0 ? 1 : groups(S::BATCH) * ceil_div(S::UNITS, UB); }
    DEV int blocks_for(const Args& a, int phase) {
        const S s(a);
        return phase == 0 ? 1 : groups(s.batch) * ceil_div(s.units, own_units(a));
    }

    DEV void reset(const Args& a, int work) {
        const S s(a);
        for (int i = threadIdx.x; i < groups(s.batch) * COUNTER / 4; i += THREADS) a.at<u32>(work)[i] = 0;
    }
    DEV u32* counter(const Args& a, int work, int group) { return a.at<u32>(work) + group * (COUNTER / 4); }
    DEV void arrive(u32* counter) {
        __syncthreads();
        if (threadIdx.x == 0) count_in(counter);
    }
    DEV void wait(u32* counter, u32 count) {
        if (threadIdx.x == 0) {
            while (counted_in(counter) < count) {}
        }
        __syncthreads();
    }
    DEV float factor(float v) {
        if constexpr (MMA) return __uint_as_float(to_tf32(v));
        return v;
    }
    // The sample, the unit and its index in the block for iteration i of a thread's tile; false if there is none.
    struct Place { int row, own, sample, unit; };
    DEV bool place(const S& s, const By& own, int group, int share, int turn, Place& p) {
        const int at = threadIdx.x + turn % EACH * THREADS, units = (int)own.by;
        p.row = (int)quotient((u32)at, own), p.own = at - p.row * units;
        p.sample = (group * TILES + turn / EACH) * 16 + p.row, p.unit = share * units + p.own;
        return at < 16 * units && p.sample < s.batch && p.unit < s.units;
    }
    // The factor of a block for state k and its gate value c; zero if there is none.
    DEV float weight_of(const Args& a, const S& s, const By& own, int slot, int share, int k, int c) {
        const int gate = (int)quotient((u32)c, own), unit = (share - gate) * (int)own.by + c;
        const bool valid = k < s.units && gate < G && unit < s.units;
        return valid ? factor(a.at<float>(slot)[(i64)k * s.wide() + gate * s.units + unit]) : 0.0f;
    }
    // Copies a block's part of the weight, which has so many rows of so many columns, to rows with this pitch.
    template <int PITCH>
    DEV void copy_weight(
        const Args& a, const S& s, const By& own, int slot, int share, int rows, const By& columns, float* to) {
        for (int i = threadIdx.x; i < rows * (int)columns.by; i += THREADS) {
            const int k = (int)quotient((u32)i, columns), c = i - k * (int)columns.by;
            to[k * PITCH + c] = weight_of(a, s, own, slot, share, k, c);
        }
    }
    // c[16x8] += a[16xN] b[Nx8] over a range of N, a multiple of 4. Rows of a have a stride of PITCH_A; row k of column
    // n of b is at n * PITCH_B + k if ALONG, otherwise at k * PITCH_B + n.
    template <int PITCH_A, int PITCH_B, bool ALONG>
    DEV void multiply(float (&c)[4], int from, int to, const float* a, const float* b) {
        const int line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
        a += line * PITCH_A;
#pragma unroll 2
        for (int k = from; k < to; k += 4) {
            const Vec<float, 4> upper = load<float, 4>(a + k), lower = load<float, 4>(a + 8 * PITCH_A + k);
            float left[4], right[4];
            if constexpr (ALONG) {
                const Vec<float, 4> one = load<float, 4>(b + 2 * at * PITCH_B + k);
                const Vec<float, 4> two = load<float, 4>(b + (2 * at + 1) * PITCH_B + k);
#pragma unroll
                for (int i = 0; i < 4; ++i) left[i] = one.v[i], right[i] = two.v[i];
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const Vec<float, 2> both = load<float, 2>(b + (k + i) * PITCH_B + 2 * at);
                    left[i] = both.v[0], right[i] = both.v[1];
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                c[0] = fmaf(upper.v[i], left[i], c[0]), c[1] = fmaf(upper.v[i], right[i], c[1]);
                c[2] = fmaf(lower.v[i], left[i], c[2]), c[3] = fmaf(lower.v[i], right[i], c[3]);
            }
        }
    }
};

// Slots and results of `recurrence`, in tiles of `GridTiles`. Blocks exchange states through `before`. The product is
// split into ranges of states. With matrix instructions, there are at most RANGES, 16 or a smaller power of two: the
// warps of a range divide the gate values of the block among them, read the states from `before`, and hold their
// weights in registers if there is room. Otherwise a warp has a range and 8 gate values.
template <class Shape, bool MMA, int UB, int TILES, int RANGES, int ROOM = ceil_div(Shape::UNITS, 8) * 8,
    int V = vec_width<typename Shape::T>(Shape::UNITS)>
struct RecurrenceGrid : GridTiles<Shape, MMA, UB, TILES, ROOM> {
    using B = GridTiles<Shape, MMA, UB, TILES, ROOM>;
    using S = Shape;
    using T = typename S::T;
    using Fwd = slots::recurrence;
    static constexpr int PHASES = 2, THREADS = B::THREADS, G = B::G, MIN_BLOCKS = 1;
    static constexpr i64 WORK = (i64)B::COUNTER * B::groups(S::BATCH);
    // Ranges of states, and the length of a row of their sums.
    DEV constexpr int parts(int units, int own) {
        const int most = MMA ? RANGES : max_i(B::WARPS * 8 / B::columns(own), 1);
        return min_i(most, B::states(units) / 8);
    }
    DEV constexpr int sum_pitch(int own) {
        return MMA ? B::pitch(B::columns(own), 8) : B::columns(own) + 4;
    }
    static constexpr int PITCH = B::pitch(B::COLS, MMA ? 4 : 8), STATE_PITCH = B::pitch(B::STATES, 4);
    // The most ranges, and numbers for a row of all sums: in a general member, for any units of a block.
    static constexpr int PARTS = !B::IS_GENERAL ? parts(S::UNITS, UB) : MMA ? RANGES : B::WARPS;
    static constexpr int SUMS =
        MMA || !B::IS_GENERAL ? PARTS * sum_pitch(UB) : max_i(B::WARPS * 8, B::COLS) + 4 * B::WARPS;
    // Matrix instructions of a range: multiples of eight states and of eight gate values. CHUNK of the former have
    // their states in registers at once.
    static constexpr int DEEP = ceil_div(B::STATES / 8, RANGES), SPAN = B::COLS / 8, CHUNK = min_i(DEEP, 8);
    static constexpr bool HOLDS =
        RANGES == B::WARPS && B::has_registers(2 * DEEP * SPAN, 4 * CHUNK + B::TURNS * (2 * G + 2));
    static constexpr int HELD = HOLDS ? 2 * DEEP * SPAN : 1;
    static constexpr int WEIGHTS = HOLDS ? 0 : B::STATES * PITCH, STATE_TILE = MMA ? 0 : 16 * STATE_PITCH;
    static constexpr int smem(int phase) { return phase == 0 ? 0 : 4 * (WEIGHTS + STATE_TILE + 16 * SUMS); }
    // A tile of states at a step.
    DEV void fetch(const Args& a, const S& s, const typename B::By& vectors, int first, int step, float* states) {
        for (int i = threadIdx.x; i < 16 * (int)vectors.by; i += THREADS) {
            const int row = (int)quotient((u32)i, vectors), k = (i - row * (int)vectors.by) * V;
            Vec<T, V> found{};
            if (first + row < s.batch)
                found = load<T, V>(a.at<T>(Fwd::BEFORE) + s.row(first + row, step) * s.units + k);
            // As many elements at once as the alignment of rows allows.
            constexpr int W = min_i(V, 4);
#pragma unroll
            for (int piece = 0; piece < V; piece += W) {
                Vec<float, W> factors;
#pragma unroll
                for (int j = 0; j < W; ++j) factors.v[j] = B::factor(to_float(found.v[piece + j]));
                store<float, W>(states + row * STATE_PITCH + k + piece, factors);
            }
        }
    }
    // The beginning of a range, in multiples of eight states.
    DEV int first_of(const typename B::By& ranges, int steps, int part) {
        return (int)quotient((u32)(steps * part), ranges);
    }
    // The product of a tile of states, which are so many multiples of eight, in `ranges`; `across` are the multiples of
    // eight gate values.
    DEV void products(const typename B::By& across, const typename B::By& ranges, int steps, int pitch,
        const float* weight, const float* states, float* sums) {
        const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
        for (int item = warp; item < (int)(across.by * ranges.by); item += B::WARPS) {
            const int part = (int)quotient((u32)item, across), col = (item - part * (int)across.by) * 8;
            float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            const int from = first_of(ranges, steps, part) * 8, past = first_of(ranges, steps, part + 1) * 8;
            B::template multiply<STATE_PITCH, PITCH, false>(c, from, past, states, weight + col);
            float* to = sums + (part * 16 + line) * pitch + col + 2 * at;
            to[0] = c[0], to[1] = c[1];
            to[8 * pitch] = c[2], to[8 * pitch + 1] = c[3];
        }
    }
    // The weights of this thread's matrix instructions. Lanes of a row have neighbouring states, two each.
    DEV void hold(const Args& a, const S& s, const typename B::By& own, const typename B::By& ranges, int share,
        float (&held)[HELD]) {
        const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
        const int steps = B::states(s.units) / 8, from = first_of(ranges, steps, warp);
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int k = (from + i / 2 / SPAN) * 8 + 2 * at + i % 2, c = i / 2 % SPAN * 8 + line;
            held[i] = B::weight_of(a, s, own, Fwd::WEIGHT, share, k, c);
        }
    }
    // Two neighbouring states of a sample; zeros beyond the last.
    DEV void two_states(const Args& a, const S& s, int sample, int step, int k, u32& one, u32& two) {
        Vec<T, 2> found{};
        if (sample < s.batch) {
            const T* from = a.at<T>(Fwd::BEFORE) + s.row(sample, step) * s.units + k;
            if constexpr (V > 1) {
                if (k < s.units) found = load<T, 2>(from);
            } else {
                if (k < s.units) found.v[0] = from[0];
                if (k + 1 < s.units) found.v[1] = from[1];
            }
        }
        one = __float_as_uint(B::factor(to_float(found.v[0])));
        two = __float_as_uint(B::factor(to_float(found.v[1])));
    }
    // As `products`, with matrix instructions; the states of samples from `first` on are read at a step.
    DEV void matrix_products(const Args& a, const S& s, const typename B::By& across, const typename B::By& ranges,
        int first, int step, int pitch, const float (&held)[HELD], const float* weight, float* sums) {
        const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
        const int range = warp % RANGES, turn = warp / RANGES;
        if (range >= (int)ranges.by) return;
        const int steps = B::states(s.units) / 8;
        const int from = first_of(ranges, steps, range), deep = first_of(ranges, steps, range + 1) - from;
        u32 left[CHUNK][4];
        auto read_states = [&](int base) {
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int sample = base + i < deep ? first + line + 8 * half : s.batch;
                    two_states(a, s, sample, step, (from + base + i) * 8 + 2 * at, left[i][half], left[i][2 + half]);
                }
            }
        };
        if (DEEP <= CHUNK) read_states(0);
        float* to = sums + (range * 16 + line) * pitch + 2 * at;
        // Two multiples of eight gate values at a time, so that one sum does not wait for the other.
#pragma unroll
        for (int tile = 0; tile < SPAN; tile += 2) {
            if (tile / 2 % (B::WARPS / RANGES) != turn) continue;
            float c[2][4] = {};
#pragma unroll
            for (int i = 0; i < DEEP; ++i) {
                if (DEEP > CHUNK && i % CHUNK == 0) read_states(i);
#pragma unroll
                for (int t = tile; t < min_i(tile + 2, SPAN); ++t) {
                    if (i >= deep || t >= (int)across.by) continue;
                    u32 right[2];
#pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        const int k = (from + i) * 8 + 2 * at + j;
                        right[j] = __float_as_uint(HOLDS ? held[HOLDS ? 2 * (i * SPAN + t) + j : 0]
                                                         : weight[HOLDS ? 0 : k * PITCH + t * 8 + line]);
                    }
                    mma_tf32(c[t - tile], left[i % CHUNK], right);
                }
            }
#pragma unroll
            for (int t = tile; t < min_i(tile + 2, SPAN); ++t) {
                if (t >= (int)across.by) continue;
                store<float, 2>(to + t * 8, Vec<float, 2>{{c[t - tile][0], c[t - tile][1]}});
                store<float, 2>(to + t * 8 + 8 * pitch, Vec<float, 2>{{c[t - tile][2], c[t - tile][3]}});
            }
        }
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) {
            B::reset(a, Fwd::WORK);
        } else {
            const S s(a);
            // Constant expressions where the kernel is compiled for its sizes, so that the bounds of loops are known.
            const int units = B::IS_GENERAL ? s.units : S::UNITS, own = B::IS_GENERAL ? B::own_units(a) : UB;
            const int shares = ceil_div(units, own), group = block / shares, share = block % shares;
            const typename B::By by_own(own), columns(B::columns(own)), across(B::columns(own) / 8),
                ranges(parts(units, own)), vectors(units / V);
            const int pitch = sum_pitch(own);
            float *weight = (float*)smem, *states = weight + WEIGHTS, *sums = states + STATE_TILE;
            float held[HELD];
            if constexpr (HOLDS) {
                hold(a, s, by_own, ranges, share, held);
            } else {
                B::template copy_weight<PITCH>(
                    a, s, by_own, Fwd::WEIGHT, share, B::states(units), columns, weight);
            }
            for (int i = threadIdx.x; i < STATE_TILE; i += THREADS) states[i] = 0.0f;
            Carried carried[B::TURNS];
            u32* counter = B::counter(a, Fwd::WORK, group);
            for (int step = 0; step < s.len; ++step) {
                // The input does not depend on other blocks.
                float x[B::TURNS][G], bias[B::TURNS][G];
#pragma unroll
                for (int i = 0; i < B::TURNS; ++i) {
                    typename B::Place p;
                    if (!B::place(s, by_own, group, share, i, p)) continue;
                    s.load_input(a, p.sample, step, p.unit, x[i]);
                    s.load_bias(a, p.unit, bias[i]);
                    if (step == 0) carried[i] = Carried{0.0f, 0.0f};
                }
                if (step > 0) B::wait(counter, step * shares);
#pragma unroll
                for (int tile = 0; tile < TILES; ++tile) {
                    if (step > 0) {
                        const int first = (group * TILES + tile) * 16;
                        if constexpr (MMA) {
                            // Threads may still read the sums of the last tile.
                            if (tile > 0) __syncthreads();
                            matrix_products(a, s, across, ranges, first, step, pitch, held, weight, sums);
                        } else {
                            fetch(a, s, vectors, first, step, states);
                            __syncthreads();
                            products(across, ranges, B::states(units) / 8, pitch, weight, states, sums);
                        }
                        __syncthreads();
                    }
#pragma unroll
                    for (int i = tile * B::EACH; i < (tile + 1) * B::EACH; ++i) {
                        typename B::Place p;
                        if (!B::place(s, by_own, group, share, i, p)) continue;
                        float product[G];
#pragma unroll
                        for (int g = 0; g < G; ++g) {
                            product[g] = 0.0f;
#pragma unroll
                            for (int part = 0; part < PARTS && step > 0; ++part)
                                if (part < (int)ranges.by)
                                    product[g] += sums[(part * 16 + p.row) * pitch + g * own + p.own];
                        }
                        s.advance(a, p.sample, step, p.unit, x[i], bias[i], product, carried[i]);
                    }
                }
                if (step + 1 < s.len) B::arrive(counter);
            }
        }
    }
};

// Slots and results of `recurrence_bwd`, in tiles of `GridTiles`. A block has the gradients of its own gates; their
// products with its part of the weight are partial gradients of all states. Blocks exchange these through the work
// memory, double-buffered, and add them in the order of the blocks.
template <class Shape, bool MMA, int UB, int TILES, int ROOM = ceil_div(Shape::UNITS, 8) * 8>
struct RecurrenceGridBwd : GridTiles<Shape, MMA, UB, TILES, ROOM> {
    using B = GridTiles<Shape, MMA, UB, TILES, ROOM>;
    using S = Shape;
    using Bwd = slots::recurrence_bwd;
    static constexpr int PHASES = 2, THREADS = B::THREADS, G = B::G, MIN_BLOCKS = 1;
    // Floats that a block sends at a position.
    DEV constexpr i64 floats_sent(int units) { return 16ll * TILES * B::states(units); }
    static constexpr i64 WORK =
        B::groups(S::BATCH) * (B::COUNTER + 8 * floats_sent(S::UNITS) * ceil_div(S::UNITS, UB));
    static constexpr int PITCH = B::pitch(B::COLS, 4);
    // Matrix instructions of a warp: multiples of eight gate values and of eight states. CHUNK of the latter have their
    // sums in registers at once.
    static constexpr int DEEP = B::COLS / 8, SPAN = ceil_div(B::STATES / 8, B::WARPS), CHUNK = min_i(SPAN, 4);
    static constexpr bool HOLDS = B::has_registers(2 * DEEP * SPAN, 4 * CHUNK + B::TURNS * (G + 6));
    static constexpr int HELD = HOLDS ? 2 * DEEP * SPAN : 1, WEIGHTS = HOLDS ? 0 : B::STATES * PITCH;
    static constexpr int smem(int phase) { return phase == 0 ? 0 : 4 * (WEIGHTS + 16 * PITCH); }
    // The floats that a block of a group, which has so many, sends at a step.
    DEV float* sent(const Args& a, const S& s, int shares, int step, int group, int share) {
        const int groups = B::groups(s.batch);
        return a.at<float>(Bwd::WORK) + B::COUNTER / 4 * groups +
            ((step % 2 * groups + group) * (i64)shares + share) * floats_sent(s.units);
    }
    // The weights of this thread's matrix instructions.
    DEV void hold(const Args& a, const S& s, const typename B::By& own, int share, float (&held)[HELD]) {
        const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int k = (warp + i / 2 % SPAN * B::WARPS) * 8 + line, c = i / 2 / SPAN * 8 + at + i % 2 * 4;
            held[i] = B::weight_of(a, s, own, Bwd::WEIGHT, share, k, c);
        }
    }
    DEV void products(int units, int columns, const float* weight, const float* values, float* to) {
        const int states = B::states(units);
        const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
        for (int first = warp * 8; first < states; first += B::WARPS * 8) {
            float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            B::template multiply<PITCH, PITCH, true>(c, 0, columns, values, weight + first * PITCH);
            send(c, to + line * states + first + 2 * at, states);
        }
    }
    // Stores a thread's elements of a product of 16 samples and 8 states.
    DEV void send(const float (&c)[4], float* to, int states) {
        store<float, 2>(to, Vec<float, 2>{{c[0], c[1]}});
        store<float, 2>(to + 8 * states, Vec<float, 2>{{c[2], c[3]}});
    }
    // As `products`, with matrix instructions: a warp reads the gradients once for all its states.
    DEV void matrix_products(
        int units, int columns, const float (&held)[HELD], const float* weight, const float* values, float* to) {
        const int states = B::states(units);
        const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, at = threadIdx.x % 4;
#pragma unroll HOLDS ? ceil_div(SPAN, CHUNK) : 1
        for (int tile = 0; tile < SPAN; tile += CHUNK) {
            float c[CHUNK][4] = {};
#pragma unroll
            for (int i = 0; i < DEEP; ++i) {
                if (i * 8 >= columns) continue;
                const float *own = values + line * PITCH + i * 8 + at, *under = own + 8 * PITCH;
                const u32 left[4] = {__float_as_uint(own[0]), __float_as_uint(under[0]), __float_as_uint(own[4]),
                    __float_as_uint(under[4])};
#pragma unroll
                for (int t = 0; t < CHUNK; ++t) {
                    const int first = (warp + (tile + t) * B::WARPS) * 8;
                    if (first >= states) continue;
                    u32 right[2];
#pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        const int place = (first + line) * PITCH + i * 8 + at + j * 4;
                        right[j] = __float_as_uint(
                            HOLDS ? held[HOLDS ? 2 * (i * SPAN + tile + t) + j : 0] : weight[HOLDS ? 0 : place]);
                    }
                    mma_tf32(c[t], left, right);
                }
            }
#pragma unroll
            for (int t = 0; t < CHUNK; ++t) {
                const int first = (warp + (tile + t) * B::WARPS) * 8;
                if (first < states) send(c[t], to + line * states + first + 2 * at, states);
            }
        }
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) {
            B::reset(a, Bwd::WORK);
        } else {
            const S s(a);
            // Constant expressions where the kernel is compiled for its sizes, so that the bounds of loops are known.
            const int units = B::IS_GENERAL ? s.units : S::UNITS, own = B::IS_GENERAL ? B::own_units(a) : UB;
            const int shares = ceil_div(units, own), group = block / shares, share = block % shares;
            const int columns = B::columns(own);
            const typename B::By by_own(own);
            float *weight = (float*)smem, *values = weight + WEIGHTS;
            float held[HELD];
            if constexpr (HOLDS) {
                hold(a, s, by_own, share, held);
            } else {
                B::template copy_weight<PITCH>(
                    a, s, by_own, Bwd::WEIGHT, share, B::states(units), typename B::By(columns), weight);
            }
            for (int i = threadIdx.x; i < 16 * PITCH; i += THREADS) values[i] = 0.0f;
            __syncthreads();
            Carried carried[B::TURNS];
            u32* counter = B::counter(a, Bwd::WORK, group);
            for (int step = s.len - 1; step >= 0; --step) {
                typename S::Saved saved[B::TURNS];
                const bool is_first = step + 1 == s.len;
#pragma unroll
                for (int i = 0; i < B::TURNS; ++i) {
                    typename B::Place p;
                    if (is_first) carried[i] = Carried{0.0f, 0.0f};
                    if (B::place(s, by_own, group, share, i, p)) saved[i] = s.load_saved(a, p.sample, step, p.unit);
                }
                if (!is_first) B::wait(counter, (s.len - 1 - step) * shares);
#pragma unroll
                for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
                    for (int i = tile * B::EACH; i < (tile + 1) * B::EACH; ++i) {
                        typename B::Place p;
                        if (!B::place(s, by_own, group, share, i, p)) continue;
                        if (!is_first) {
                            const float* from = sent(a, s, shares, step + 1, group, 0) +
                                (tile * 16 + p.row) * B::states(units) + p.unit;
                            float sum = 0.0f;
#pragma unroll 16
                            for (int other = 0; other < shares; ++other) sum += from[other * floats_sent(units)];
                            carried[i].state += sum;
                        }
                        float hidden[G];
                        s.retreat(a, p.sample, step, p.unit, saved[i], carried[i], hidden);
#pragma unroll
                        for (int g = 0; g < G; ++g) values[p.row * PITCH + g * own + p.own] = B::factor(hidden[g]);
                    }
                    __syncthreads();
                    if (step > 0) {
                        float* to = sent(a, s, shares, step, group, share) + tile * 16 * B::states(units);
                        if constexpr (MMA) matrix_products(units, columns, held, weight, values, to);
                        else products(units, columns, weight, values, to);
                    }
                    __syncthreads();
                }
                if (step > 0) B::arrive(counter);
            }
        }
    }
};
