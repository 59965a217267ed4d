// Parameter updates over the flat parameter vector, their metrics, and the scale of the loss in half precision.
//
// The vector consists of segments, one for each parameter: a segment starts at a multiple of 64 elements, and the padding behind it is
// left alone. Blocks handle chunks that never span two segments. A step's segments are declared before its operation's type, as
//
//     static __device__ const u32 SEGMENT_ROWS[COUNT * 3] = {first block, first element / 64, elements, ...};
//     struct Segments { static constexpr int COUNT, BLOCKS; static __device__ const u32* rows(); };
//
// where segment s has blocks [first block, first block of s + 1), each with CHUNK elements but for the last one.

// ---------------------------------------------------------------------------------------------------- rules

DEV float optimizer_constant(u64 bits) { return (float)__longlong_as_double((i64)bits); }
// 1 - the constant, rounded once.
DEV float optimizer_rest(u64 bits) { return (float)(1.0 - __longlong_as_double((i64)bits)); }

// Adam, or AdamW where DECOUPLED. The constants are the bits of f64 values.
template <u64 BETA1, u64 BETA2, u64 EPS, bool DECOUPLED> struct Adam {
    static constexpr int STATES = 2;
    // Slots; the states follow one another.
    static constexpr int PARAM_PREV = 0, GRAD = 1, STATE_PREV = 2, HYPER = 4, CORR = 5, PARAM = 6, STATE = 7, UPDATE_MAX = 9, GRAD_SQ = 10;
    static constexpr int WORK = 11, SCALER = 12, SHADOW = 13, TOTAL_MAX = 14, GRAD_NORM = 15, TICKET = 16;
    float lr, wd, corr0, corr1;
    __device__ __forceinline__ void read(const Args& a) {
        lr = a.at<float>(HYPER)[0];
        wd = a.at<float>(HYPER)[1];
        corr0 = a.at<float>(CORR)[0];
        corr1 = a.at<float>(CORR)[1];
    }
    // The new parameter.
    __device__ __forceinline__ float step(float old, float grad, float& m, float& v) const {
        const float g = DECOUPLED ? grad : grad + wd * old;
        const float decayed = DECOUPLED ? old - lr * wd * old : old;
        m = optimizer_constant(BETA1) * m + optimizer_rest(BETA1) * g;
        v = optimizer_constant(BETA2) * v + optimizer_rest(BETA2) * g * g;
        return decayed - lr * corr0 * m / (sqrtf(v) * corr1 + optimizer_constant(EPS));
    }
};

// Gradient descent; the momentum's buffer is bound where MOMENTUM is not zero.
template <u64 MOMENTUM, bool NESTEROV> struct Sgd {
    static constexpr int STATES = MOMENTUM << 1 != 0 ? 1 : 0;
    static constexpr int PARAM_PREV = 0, GRAD = 1, STATE_PREV = 2, HYPER = 3, PARAM = 4, STATE = 5, UPDATE_MAX = 6, GRAD_SQ = 7;
    static constexpr int WORK = 8, SCALER = 9, SHADOW = 10, TOTAL_MAX = 11, GRAD_NORM = 12, TICKET = 13;
    float lr, wd;
    __device__ __forceinline__ void read(const Args& a) {
        lr = a.at<float>(HYPER)[0];
        wd = a.at<float>(HYPER)[1];
    }
    __device__ __forceinline__ float step(float old, float grad, float& buffer, float&) const {
        float g = grad + wd * old;
        if constexpr (STATES == 1) {
            buffer = optimizer_constant(MOMENTUM) * buffer + g;
            g = NESTEROV ? g + optimizer_constant(MOMENTUM) * buffer : buffer;
        }
        return old - lr * g;
    }
};

// ---------------------------------------------------------------------------------------------------- update

// The largest change and the sum of squared gradients.
struct alignas(8) UpdateMetric {
    float max, square;
    __device__ __forceinline__ void add(const UpdateMetric& other) {
        max = MaxOrNan::of(max, other.max);
        square += other.square;
    }
};

// A step over all segments. Slots: those of the rule. `p`, `g` and the states are float; `shadow` is a copy of the new parameters of type T,
// written where bound. With `scaler` bound, gradients are multiplied by scaler[2] first, and where scaler[3] is 1 nothing but zero metrics
// is written.
//
// Segments::BLOCKS blocks of 256 threads, each with a chunk of CHUNK elements (a multiple of 1024) of one segment in groups of 16 bytes;
// the last elements of a segment go one by one. Where a metric is bound each block leaves two floats in work. With TICKET the block that
// draws the last number reduces them, a thread for each short segment and a warp for each long one, writes the metrics and puts the ticket
// back to zero; without, a second phase of one block does. Both in an order that does not depend on time. Moves 12 bytes a parameter, 8
// more for each state, and the shadow.
template <class Rule, class T, class Segments, int CHUNK, bool TICKET> struct Update {
    static constexpr int PHASES = TICKET ? 1 : 2, THREADS = 256, WARPS = THREADS / 32;
    static constexpr int BLOCKS = Segments::BLOCKS, COUNT = Segments::COUNT;
    // Partial results are brought into shared memory in one go where they take little of it.
    static constexpr bool STAGED = BLOCKS <= 2048;
    static constexpr int HEAD = 512, FIRSTS = COUNT <= 4096 ? (COUNT + 2) / 2 * 8 : 0;
    static constexpr int REDUCE_SMEM = HEAD + FIRSTS + (STAGED ? 8 * BLOCKS : 0);
    static constexpr int blocks(int phase) { return phase == 0 ? BLOCKS : 1; }
    static constexpr int smem(int phase) { return TICKET || phase == 1 ? REDUCE_SMEM : HEAD; }
    static constexpr i64 WORK = 8ll * BLOCKS;
    static constexpr int V = 4, STATES = Rule::STATES;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const bool metrics = a.has(Rule::UPDATE_MAX) || a.has(Rule::GRAD_SQ) || a.has(Rule::TOTAL_MAX) || a.has(Rule::GRAD_NORM);
        bool overflow = false;
        float unscale = 1.0f;
        if (a.has(Rule::SCALER)) {
            unscale = a.at<float>(Rule::SCALER)[2];
            overflow = a.at<float>(Rule::SCALER)[3] == 1.0f;
        }
        if constexpr (PHASE == 1) {
            if (metrics && !overflow) reduce(a, smem);
        } else if (overflow) {
            if (block == 0) write_zeros(a);
        } else {
            const UpdateMetric mine = update(a, block, unscale, metrics, smem);
            if (!metrics) return;
            const UpdateMetric sum = block_sum(mine, smem);
            u32* last = (u32*)(smem + HEAD - 8);
            if (threadIdx.x == 0) {
                a.at<UpdateMetric>(Rule::WORK)[block] = sum;
                if constexpr (TICKET) *last = draw(a.at<u32>(Rule::TICKET)) == BLOCKS - 1;
            }
            if constexpr (TICKET) {
                __syncthreads();
                if (*last == 0) return;
                if (threadIdx.x == 0) *a.at<u32>(Rule::TICKET) = 0;
                reduce(a, smem);
            }
        }
    }

    // Draws a number. What the thread wrote before can be read by whoever draws a later one, and by the block behind that one's next barrier.
    static __device__ __forceinline__ u32 draw(u32* ticket) {
        u32 drawn;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(ticket) : "memory");
        return drawn;
    }

    // The segment of a block: its first block, its start in units of 64 elements, its elements.
    static __device__ __forceinline__ void find(int block, u32 (&row)[3], char* smem) {
        const u32* rows = Segments::rows();
        if constexpr (COUNT <= 12) {
            // Unrolled, the table turns into constants of the instructions.
#pragma unroll
            for (int s = 0; s < COUNT; ++s) {
                if (s == 0 || block >= (int)rows[s * 3]) row[0] = rows[s * 3], row[1] = rows[s * 3 + 1], row[2] = rows[s * 3 + 2];
            }
        } else {
            // Whichever thread holds the block's segment tells the others, so that one trip to memory is enough.
            u32* found = (u32*)(smem + HEAD - 24);
            for (int s = threadIdx.x; s < COUNT; s += THREADS) {
                const u32 first = rows[s * 3], start = rows[s * 3 + 1], len = rows[s * 3 + 2];
                if (block >= (int)first && block < (int)first + ceil_div(len, CHUNK)) found[0] = first, found[1] = start, found[2] = len;
            }
            __syncthreads();
            row[0] = found[0], row[1] = found[1], row[2] = found[2];
        }
    }

    // Updates the block's chunk; gives this thread's share of the metrics.
    static __device__ __forceinline__ UpdateMetric update(const Args& a, int block, float unscale, bool metrics, char* smem) {
        Rule rule;
        rule.read(a);
        u32 row[3];
        find(block, row, smem);
        const u32 offset = (block - row[0]) * CHUNK;
        const i64 start = (i64)row[1] * 64 + offset;
        const int len = min_i(CHUNK, (int)(row[2] - offset));
        float* param = a.at<float>(Rule::PARAM) + start;
        const float* param_prev = a.has(Rule::PARAM_PREV) ? a.at<float>(Rule::PARAM_PREV) + start : param;
        const float* grad = a.at<float>(Rule::GRAD) + start;
        T* shadow = a.has(Rule::SHADOW) ? a.at<T>(Rule::SHADOW) + start : nullptr;
        float* state[2];
        const float* state_prev[2];
#pragma unroll
        for (int k = 0; k < STATES; ++k) {
            state[k] = a.at<float>(Rule::STATE + k) + start;
            state_prev[k] = a.has(Rule::STATE_PREV + k) ? a.at<float>(Rule::STATE_PREV + k) + start : state[k];
        }

        UpdateMetric sum = {0.0f, 0.0f};
        const auto one = [&](float old, float g, float& s0, float& s1) {
            g *= unscale;
            const float now = rule.step(old, g, s0, s1);
            if (metrics) sum.add(UpdateMetric{fabsf(now - old), g * g});
            return now;
        };
        const int whole = len / V * V;
#pragma unroll 1
        for (int i = threadIdx.x * V; i < whole; i += THREADS * V) {
            Vec<float, V> p = load<float, V>(param_prev + i), s[2];
            const Vec<float, V> g = load<float, V>(grad + i);
#pragma unroll
            for (int k = 0; k < STATES; ++k) s[k] = load<float, V>(state_prev[k] + i);
            Vec<T, V> copy;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                p.v[j] = one(p.v[j], g.v[j], s[0].v[j], s[1].v[j]);
                copy.v[j] = narrow<T>(p.v[j]);
            }
            store<float, V>(param + i, p);
#pragma unroll
            for (int k = 0; k < STATES; ++k) store<float, V>(state[k] + i, s[k]);
            if (shadow != nullptr) store<T, V>(shadow + i, copy);
        }
        if (threadIdx.x < len - whole) {
            const int i = whole + threadIdx.x;
            float s[2] = {0.0f, 0.0f};
#pragma unroll
            for (int k = 0; k < STATES; ++k) s[k] = state_prev[k][i];
            const float now = one(param_prev[i], grad[i], s[0], s[1]);
            param[i] = now;
#pragma unroll
            for (int k = 0; k < STATES; ++k) state[k][i] = s[k];
            if (shadow != nullptr) shadow[i] = narrow<T>(now);
        }
        return sum;
    }

    static __device__ __forceinline__ UpdateMetric warp_sum(UpdateMetric m) {
        return UpdateMetric{warp_reduce<MaxOrNan>(m.max), warp_reduce<Sum>(m.square)};
    }

    // Warp 0 gets the result. The beginning of `smem` may be used again after the next barrier.
    static __device__ __forceinline__ UpdateMetric block_sum(UpdateMetric m, char* smem) {
        UpdateMetric* scratch = (UpdateMetric*)smem;
        const int lane = threadIdx.x % 32;
        m = warp_sum(m);
        if (lane == 0) scratch[threadIdx.x / 32] = m;
        __syncthreads();
        if (threadIdx.x < 32) m = warp_sum(lane < WARPS ? scratch[lane] : UpdateMetric{0.0f, 0.0f});
        return m;
    }

    // The metrics of every segment and of all of them, from the blocks' partial results.
    static __device__ __forceinline__ void reduce(const Args& a, char* smem) {
        constexpr int SHORT = 8;
        const u32* rows = Segments::rows();
        u32* firsts = (u32*)(smem + HEAD);
        UpdateMetric* staged = (UpdateMetric*)(smem + HEAD + FIRSTS);
        UpdateMetric* work = a.at<UpdateMetric>(Rule::WORK);
        const auto partial = [&](int i) {
            if constexpr (STAGED) return staged[i];
            // Other blocks wrote it, so the second-level cache is the nearest place that has it.
            else return fetch(work + i);
        };
        const auto first_block = [&](int s) { return s == COUNT ? BLOCKS : FIRSTS > 0 ? (int)firsts[s] : (int)rows[s * 3]; };
        if constexpr (FIRSTS > 0) {
            for (int s = threadIdx.x; s < COUNT; s += THREADS) firsts[s] = rows[s * 3];
        }
        if constexpr (STAGED) {
#pragma unroll 8
            for (int i = threadIdx.x; i < BLOCKS; i += THREADS) staged[i] = fetch(work + i);
        }
        __syncthreads();
        UpdateMetric total = {0.0f, 0.0f};
        const auto finish = [&](int s, const UpdateMetric& m) {
            if (a.has(Rule::UPDATE_MAX)) a.at<float>(Rule::UPDATE_MAX)[s] = m.max;
            if (a.has(Rule::GRAD_SQ)) a.at<float>(Rule::GRAD_SQ)[s] = m.square;
            total.add(m);
        };
        for (int s = threadIdx.x; s < COUNT; s += THREADS) {
            const int first = first_block(s), end = first_block(s + 1);
            if (end - first > SHORT) continue;
            UpdateMetric m = {0.0f, 0.0f};
#pragma unroll 4
            for (int i = first; i < end; ++i) m.add(partial(i));
            finish(s, m);
        }
        const int lane = threadIdx.x % 32;
        for (int s = threadIdx.x / 32; s < COUNT; s += WARPS) {
            const int first = first_block(s), end = first_block(s + 1);
            if (end - first <= SHORT) continue;
            UpdateMetric m = {0.0f, 0.0f};
#pragma unroll 8
            for (int i = first + lane; i < end; i += 32) m.add(partial(i));
            m = warp_sum(m);
            if (lane == 0) finish(s, m);
        }
        if (!a.has(Rule::TOTAL_MAX) && !a.has(Rule::GRAD_NORM)) return;
        total = block_sum(total, smem);
        if (threadIdx.x != 0) return;
        if (a.has(Rule::TOTAL_MAX)) *a.at<float>(Rule::TOTAL_MAX) = total.max;
        if (a.has(Rule::GRAD_NORM)) *a.at<float>(Rule::GRAD_NORM) = sqrtf(total.square);
    }

    static __device__ __forceinline__ UpdateMetric fetch(const UpdateMetric* at) {
        const float2 both = __ldcg((const float2*)at);
        return UpdateMetric{both.x, both.y};
    }

    // What a step that overflowed reports.
    static __device__ __forceinline__ void write_zeros(const Args& a) {
        for (int s = threadIdx.x; s < COUNT; s += THREADS) {
            if (a.has(Rule::UPDATE_MAX)) a.at<float>(Rule::UPDATE_MAX)[s] = 0.0f;
            if (a.has(Rule::GRAD_SQ)) a.at<float>(Rule::GRAD_SQ)[s] = 0.0f;
        }
        if (threadIdx.x != 0) return;
        if (a.has(Rule::TOTAL_MAX)) *a.at<float>(Rule::TOTAL_MAX) = 0.0f;
        if (a.has(Rule::GRAD_NORM)) *a.at<float>(Rule::GRAD_NORM) = 0.0f;
    }
};

// ---------------------------------------------------------------------------------------------------- loss scale

// Slots: 0 grad [len] float, 1 scaler_prev [4] float or unbound, 2 scaler [4] float, 3 work, 4 ticket u32.
// scaler is: the scale of the loss, steps since the last overflow, 1 / the scale of this step's gradients, 1.0 where one of them is not
// finite. An overflow halves the scale; 2000 steps without one double it. BLOCKS (at most 1024) blocks of THREADS threads stride over
// groups of 16 bytes. Blocks count themselves in the lower half of the ticket and overflows in the upper half; the last one decides and
// puts the ticket back to zero, so work is not used. Overwrites; deterministic. Reads the gradients once.
template <i64 LEN, int THREADS_, int BLOCKS> struct ScaleUpdate {
    static constexpr int PHASES = 1, THREADS = THREADS_, FLIGHT = 4;
    static constexpr int blocks(int) { return BLOCKS; }
    static constexpr int smem(int) { return 0; }
    static constexpr i64 WORK = 0;
    static_assert(BLOCKS <= 1024, "the ticket's halves hold 16 bits each");
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        constexpr i64 VECS = LEN / 4;
        const u32* grad = a.at<u32>(0);
        // Without its sign, a float is finite if its bits are below infinity's.
        u32 largest = 0;
#pragma unroll 1
        for (i64 base = (i64)block * (THREADS * FLIGHT) + threadIdx.x; base < VECS; base += (i64)BLOCKS * (THREADS * FLIGHT)) {
#pragma unroll
            for (int f = 0; f < FLIGHT; ++f) {
                const i64 at = base + f * THREADS;
                if (at >= VECS) continue;
                const Vec<u32, 4> g = load<u32, 4>(grad + at * 4);
#pragma unroll
                for (int j = 0; j < 4; ++j) largest = max(largest, g.v[j] & 0x7fffffffu);
            }
        }
        if constexpr (VECS * 4 < LEN) {
            if (block == 0 && threadIdx.x < LEN - VECS * 4) largest = max(largest, grad[VECS * 4 + threadIdx.x] & 0x7fffffffu);
        }
        bool overflow = __syncthreads_or(largest >= 0x7f800000u) != 0;
        if (threadIdx.x != 0) return;
        if constexpr (BLOCKS > 1) {
            const u32 own = overflow ? 0x10001u : 1u;
            const u32 count = atomicAdd(a.at<u32>(4), own) + own;
            if ((count & 0xffffu) != BLOCKS) return;
            *a.at<u32>(4) = 0;
            overflow = count >> 16 != 0;
        }
        float* scaler = a.at<float>(2);
        const float* prev = a.has(1) ? a.at<float>(1) : scaler;
        float scale = prev[0], steps = overflow ? 0.0f : prev[1] + 1.0f;
        scaler[2] = 1.0f / scale;
        scaler[3] = overflow ? 1.0f : 0.0f;
        if (overflow) scale = fmaxf(scale * 0.5f, 1.0f);
        if (steps >= 2000.0f) scale = fminf(scale * 2.0f, 16777216.0f), steps = 0.0f;
        scaler[0] = scale;
        scaler[1] = steps;
    }
};
