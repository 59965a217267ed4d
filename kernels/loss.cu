// Losses over `[rows, classes]` with class labels, mean squared errors over flat arrays, and their gradients.
//
// Scores, probabilities and their gradients are of type T; losses, accuracy and every sum are float. If a label is out
// of range, the loss and the gradient of its row are NaN, and the answer counts as wrong. Partial sums are added in a
// fixed order, so results do not depend on the order in which blocks finish.

// ---------------------------------------- shared

DEV float loss_infinity() { return __int_as_float(0x7f800000); }
DEV float loss_nan() { return __int_as_float(0x7fffffff); }

// The exponential of a number that is at most zero.
DEV float loss_exp(float x) { return expf(x); }

// The larger one; NaN is ignored, because the following sum of exponentials becomes NaN anyway.
struct LossMax {
    static constexpr float ZERO = 0.0f;
    DEV float of(float a, float b) { return fmaxf(a, b); }
};

#define OWN __device__ __forceinline__

// A real number: the constant with these bits of an f64, or number AT of an operation, which holds them.
template <u64 BITS, int AT> struct LossReal {
    OWN constexpr explicit LossReal(const Args&) {}
    OWN double value() const { return __longlong_as_double((i64)BITS); }
};
template <int AT> struct LossReal<(u64)ANY, AT> {
    const double given;
    OWN explicit LossReal(const Args& a) : given(__longlong_as_double(Number<ANY, AT>(a))) {}
    OWN double value() const { return given; }
};

// The targets with label smoothing, which is number AT if there is any. CLASSES is number CLASSES_AT of an operation.
template <i64 CLASSES, u64 SMOOTHING, int AT, int CLASSES_AT = 1> struct LossTarget {
    static constexpr bool SMOOTH = SMOOTHING << 1 != 0, FIXED = is_fixed(CLASSES) && SMOOTHING != (u64)ANY;
    const Number<CLASSES, CLASSES_AT> given;
    const LossReal<SMOOTHING, AT> real;
    // The probabilities of a row's own class, as far as it is not smoothed and altogether, and of every other class. A
    // general member computes them once, because arithmetic in double takes longer than the rest of a row, and before
    // it waits for the preceding launch if it does so itself.
    float keep = 1.0f, whole = 1.0f, share = 0.0f;
    OWN explicit LossTarget(const Args& a) : given(a), real(a) {
        if constexpr (SMOOTH) {
            keep = (float)(1.0 - smoothing());
            whole = (float)(1.0 - smoothing() + smoothing() / classes());
            share = (float)(smoothing() / classes());
            if constexpr (!FIXED) asm volatile("" : "+f"(keep), "+f"(whole), "+f"(share));
        }
    }
    OWN int classes() const { return (int)given; }
    OWN double smoothing() const { return real.value(); }
    OWN bool names_class(int label) const { return (u32)label < (u32)classes(); }
    // The target probability of class `col`; and the same if it is already known whether the class is the label.
    OWN float of(int label, int col) const { return of_label(label, col == label); }
    OWN float of_label(int label, bool is_label) const {
        const float other = names_class(label) ? share : loss_nan();
        return is_label ? whole : other;
    }
    // The loss of a row from its sum of exponentials, the label's score and the sum of all scores, all relative to the
    // largest score.
    OWN float loss(float log_sum, float own, float all) const {
        const float loss = fmaf(-keep, own, log_sum);
        return SMOOTH ? fmaf(-share, all, loss) : loss;
    }
};

// Sums over the warp. All values except the first are counts, which one instruction adds as integers.
template <int K> DEV void loss_warp_sum(float (&v)[K]) {
    v[0] = warp_reduce<Sum>(v[0]);
#pragma unroll
    for (int k = 1; k < K; ++k) v[k] = (float)__reduce_add_sync(0xffffffffu, (u32)v[k]);
}

// Sums K values over the block; warp 0 gets the sums. `scratch` holds 32 K floats that no other code uses until the
// next barrier.
template <int K, int THREADS> DEV void loss_block_sum(float (&v)[K], float* scratch) {
    constexpr int WARPS = THREADS / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    loss_warp_sum<K>(v);
    if constexpr (WARPS > 1) {
        if (lane == 0) {
#pragma unroll
            for (int k = 0; k < K; ++k) scratch[k * 32 + warp] = v[k];
        }
        __syncthreads();
        if (warp == 0) {
#pragma unroll
            for (int k = 0; k < K; ++k) v[k] = lane < WARPS ? scratch[k * 32 + lane] : 0.0f;
            loss_warp_sum<K>(v);
        }
    }
}

template <int K> __host__ __device__ constexpr int loss_smem() { return (32 * K + 4) * 4; }

// Draws the next number from the ticket. Everything that this thread wrote before is visible to a thread that draws a
// later number, and to its block after the next barrier.
DEV u32 loss_draw(u32* ticket) {
    u32 drawn;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(ticket) : "memory");
    return drawn;
}

// The blocks of an operation, number INDEX of it.
template <i64 BLOCKS, int INDEX> struct LossBlocks : Number<BLOCKS, INDEX> {
    static constexpr bool ONE = BLOCKS == 1;
    using Number<BLOCKS, INDEX>::Number;
};

// A loss in one launch, which sums K values over all blocks; their number is number AT. With K = 0 it computes only a
// gradient.
template <int K, i64 BLOCKS, int AT, int THREADS_> struct LossInOneLaunch {
    using Blocks = LossBlocks<BLOCKS, AT>;
    static constexpr int PHASES = 1, THREADS = THREADS_;
    static constexpr int blocks(int) { return BLOCKS; }
    DEV int blocks_for(const Args& a, int) { return (int)Blocks(a); }
    static constexpr int smem(int) { return K > 0 ? loss_smem<K>() : 0; }
    static constexpr i64 WORK = BLOCKS > 1 ? 4ll * K * BLOCKS : 0;
};

// A loss of one block, or in two phases with one partial sum for each block.
template <i64 BLOCKS, int THREADS_> struct LossInPhases {
    using Blocks = LossBlocks<BLOCKS, 1>;
    static constexpr int PHASES = BLOCKS == 1 ? 1 : 2, THREADS = THREADS_;
    static constexpr int blocks(int phase) { return phase == 0 ? BLOCKS : 1; }
    DEV int blocks_for(const Args& a, int phase) { return phase == 0 ? (int)Blocks(a) : 1; }
    static constexpr int smem(int) { return loss_smem<1>(); }
    static constexpr i64 WORK = BLOCKS > 1 ? 4ll * BLOCKS : 0;
    // Sums the results of `share` for all threads of the first phase, and writes the result of `mean` for this sum.
    template <int PHASE, class Slots, class Share, class Mean>
    DEV void finish(const Args& a, const Blocks count, int block, char* smem, const Share& share, const Mean& mean) {
        const int blocks = (int)count;
        float sum[1] = {0.0f};
        if constexpr (PHASE == 0) sum[0] = share();
        else {
#pragma unroll 4
            for (int i = threadIdx.x; i < blocks; i += THREADS) sum[0] += a.at<float>(Slots::WORK)[i];
        }
        loss_block_sum<1, THREADS>(sum, (float*)smem);
        if (threadIdx.x != 0) return;
        if constexpr (PHASE + 1 < PHASES) a.at<float>(Slots::WORK)[block] = sum[0];
        else *a.at<float>(Slots::LOSS) = mean(sum[0]);
    }
};

// Sums K values over all blocks; returns true for the one thread that holds the sums. Partial sums are in `work
// [blocks, K]`; the block that draws the last number from `ticket` adds them and resets the ticket to zero. With one
// block neither is used.
template <int K, int THREADS, class Blocks>
DEV bool loss_total(float (&v)[K], const Blocks& given, float* work, u32* ticket, int block, char* smem) {
    float* scratch = (float*)smem;
    const int blocks = (int)given;
    loss_block_sum<K, THREADS>(v, scratch);
    if constexpr (!Blocks::ONE) {
        u32* last = (u32*)(scratch + 32 * K);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int k = 0; k < K; ++k) work[block * K + k] = v[k];
            *last = loss_draw(ticket) == blocks - 1;
        }
        __syncthreads();
        if (*last == 0) return false;
#pragma unroll
        for (int k = 0; k < K; ++k) v[k] = 0.0f;
#pragma unroll 4
        for (int i = threadIdx.x; i < blocks; i += THREADS) {
#pragma unroll
            for (int k = 0; k < K; ++k) v[k] += __ldcg(work + i * K + k);
        }
        loss_block_sum<K, THREADS>(v, scratch);
        if (threadIdx.x == 0) *ticket = 0;
    }
    return threadIdx.x == 0;
}

// The number of classes that one access moves, and the number of accesses of a lane if LANES lanes share a row in
// registers.
template <class T> __host__ __device__ constexpr int loss_width(i64 classes) {
    return min_i(vec_width<T>(classes), classes <= 128 ? 4 : 8);
}
__host__ __device__ constexpr int loss_turns(i64 classes, int lanes, int width) {
    return ceil_div(classes, lanes * width);
}

// A row of up to 1024 classes, held in the registers of LANES (1 to 32, a power of two) neighbouring threads of a warp,
// ITERS vectors of V each. Every lane of the warp must call `softmax`, whether its row exists or not.
template <class T, class Target, int LANES, int V, int ITERS> struct LossRow {
    static constexpr int N = ITERS * V;
    float v[N];

    DEV int column(int i, int lane) { return (i / V * LANES + lane) * V + i % V; }

    // Elements past the end of the row are minus infinity, whose exponential is zero.
    __device__ __forceinline__ void read(const Target& target, const T* row, int lane, bool valid) {
#pragma unroll
        for (int k = 0; k < ITERS; ++k) {
            const int col = column(k * V, lane);
            if (valid && col < target.classes()) {
                const Vec<T, V> x = load<T, V>(row + col);
#pragma unroll
                for (int j = 0; j < V; ++j) v[k * V + j] = to_float(x.v[j]);
            } else {
#pragma unroll
                for (int j = 0; j < V; ++j) v[k * V + j] = -loss_infinity();
            }
        }
    }

    // Replaces scores by probabilities. Returns the loss, and whether the first of the largest scores is at the label.
    __device__ __forceinline__ float softmax(const Target& target, int lane, int label, bool& right) {
        float max = v[0], own = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            max = fmaxf(max, v[i]);
            if (column(i, lane) == label) own = v[i];
        }
        max = warp_reduce<LossMax, LANES>(max);
        if constexpr (LANES > 1) own = __shfl_sync(0xffffffffu, own, (u32)label / V % LANES, LANES);
        if (!target.names_class(label)) own = loss_nan();
        bool wrong = false;
        float sum = 0.0f, all = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int col = column(i, lane);
            if (col < target.classes()) {
                wrong |= !(col < label ? v[i] < own : v[i] <= own);
                if constexpr (Target::SMOOTH) all += v[i] - max;
            }
            v[i] = loss_exp(v[i] - max);
            sum += v[i];
        }
        sum = warp_reduce<Sum, LANES>(sum);
        if constexpr (Target::SMOOTH) all = warp_reduce<Sum, LANES>(all);
        const u32 wrongs = __ballot_sync(0xffffffffu, wrong);
        right = (wrongs >> (threadIdx.x % 32 / LANES * LANES) & (0xffffffffu >> (32 - LANES))) == 0;
        const float inverse = __fdividef(1.0f, sum);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] *= inverse;
        return target.loss(logf(sum), own - max, all);
    }

    // Writes `f(probability, column)`.
    template <class F> __device__ __forceinline__ void write(const Target& target, T* row, int lane, F f) const {
#pragma unroll
        for (int k = 0; k < ITERS; ++k) {
            const int col = column(k * V, lane);
            if (col >= target.classes()) continue;
            Vec<T, V> out;
#pragma unroll
            for (int j = 0; j < V; ++j) out.v[j] = narrow<T>(f(v[k * V + j], col + j));
            store<T, V>(row + col, out);
        }
    }
};

// Minus infinity in both halves of a word; 0 if T has more than 16 bits.
template <class T> DEV u32 loss_lowest_pair() {
    if constexpr (sizeof(T) == 2) return Pair<T>::join(-loss_infinity(), -loss_infinity());
    return 0;
}

// The larger numbers of two pairs; NaN if one is NaN.
DEV u32 larger_pair(bf16, u32 a, u32 b) {
    u32 out;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
DEV u32 larger_pair(f16, u32 a, u32 b) {
    u32 out;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The largest of groups of V scores; NaN if one is NaN. Two 16-bit scores are compared by one instruction.
template <class T, int V> struct LossPeak {
    static constexpr bool PAIRS = sizeof(T) == 2 && V % 2 == 0;
    float single = -loss_infinity();
    u32 pair = loss_lowest_pair<T>();
    OWN void add(const Raw<T, V>& x) {
        if constexpr (PAIRS) {
#pragma unroll
            for (int i = 0; i < V / 2; ++i) pair = larger_pair(T{}, pair, x.w[i]);
        } else {
            float v[V];
            x.widen(v);
#pragma unroll
            for (int i = 0; i < V; ++i) single = MaxOrNan::of(single, v[i]);
        }
    }
    OWN float value() const {
        if constexpr (PAIRS) {
            float low, high;
            Pair<T>::split(pair, low, high);
            return MaxOrNan::of(low, high);
        }
        return single;
    }
};

// A row of more than 1024 classes, shared by a block. It is read three times, or twice if IN_ONE, and once more up to
// the label if that has the largest score: from shared memory if COPIES, all but the first time from there if only
// HELD, otherwise mostly from the caches. A thread always handles the same classes, so that its copies of scores need
// no barrier. Exponentials for 16-bit results are single instructions.
//
// If COPIES, `prefetch` copies the first row to shared memory before it is needed, and `write` each following one, as
// soon as a thread has read its scores of the row before.
template <class T, class Target, int THREADS, int V, bool HELD> struct LossWideRow {
    // The row if it is not HELD, and otherwise [classes] in shared memory.
    const T* scores;
    float own, max, log_sum;
    // Whether the largest score and the sum of exponentials are found at the same time.
    static constexpr bool IN_ONE = sizeof(T) < 4 && !Target::SMOOTH;
    static constexpr int BYTES = V * (int)sizeof(T), STRIDE = THREADS * V;
    static constexpr bool COPIES = HELD && BYTES >= 4;
    static constexpr float TO_BASE_2 = 1.44269504f;
    using Group = Raw<T, V>;

    // Calls `each` for this thread's groups of scores, each with its first class, with FLIGHT loads in flight.
    template <int FLIGHT = 4, class Each> DEV void each_group(const T* from, int classes, const Each& each) {
#pragma unroll 1
        for (int first = threadIdx.x * V; first < classes; first += FLIGHT * STRIDE) {
            Group x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; ++f)
                if (first + f * STRIDE < classes) x[f].get(from + first + f * STRIDE);
#pragma unroll
            for (int f = 0; f < FLIGHT; ++f)
                if (first + f * STRIDE < classes) each(first + f * STRIDE, x[f]);
        }
    }

    // Starts to copy this thread's scores of a row to shared memory; of no row if `row` is null.
    DEV void prefetch(const T* row, T* held, int classes) {
        if constexpr (COPIES) {
            if (row != nullptr)
                for (int col = threadIdx.x * V; col < classes; col += STRIDE)
                    copy_async<BYTES>(held + col, row + col, true);
            copy_commit();
        }
    }

    // The exponential of a score from which the largest one, or the logarithm of the sum too, was subtracted.
    DEV float exp_of(float relative) {
        if constexpr (sizeof(T) < 4) return exp2_approximate(relative * TO_BASE_2);
        return loss_exp(relative);
    }

    // Like `LossRow::softmax`, but the row is not changed. Every thread of the block gets the results. `scratch` holds
    // THREADS / 32 floats, and `held` a row if it is HELD: this one if COPIES.
    OWN float softmax(const Target& target, const T* row, int label, bool& right, float* scratch, T* held) {
        const int classes = target.classes();
        // The label's score is read before the first barrier, so before another thread can overwrite it.
        own = target.names_class(label) ? to_float(row[label]) : loss_nan();
        float sum = 0.0f, all = 0.0f;
        if constexpr (HELD) scores = held;
        else scores = row;
        if constexpr (COPIES) copy_wait<0>();
        const T* const from = COPIES ? held : row;
        const auto keep = [&](int col, const Group& x) {
            if constexpr (HELD && !COPIES) x.put(held + col);
        };
        if constexpr (IN_ONE) {
            sum = peak_and_sum(from, classes, scratch, keep);
        } else {
            LossPeak<T, V> peak;
            each_group(from, classes, [&](int col, const Group& x) {
                keep(col, x);
                peak.add(x);
            });
            max = block_reduce<MaxOrNan, THREADS>(peak.value(), scratch);
            each_group(scores, classes, [&](int, const Group& x) {
                float v[V];
                x.widen(v);
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    const float relative = v[j] - max;
                    if constexpr (Target::SMOOTH) all += relative;
                    sum += exp_of(relative);
                }
            });
        }
        log_sum = logf(block_reduce<Sum, THREADS>(sum, scratch));
        if constexpr (Target::SMOOTH) all = block_reduce<Sum, THREADS>(all, scratch);
        right = own == max;
        if (right) {
            bool earlier = false;
            each_group(scores, label, [&](int col, const Group& x) {
                float v[V];
                x.widen(v);
#pragma unroll
                for (int j = 0; j < V; ++j) earlier |= col + j < label && v[j] == max;
            });
            right = __syncthreads_or(earlier) == 0;
        }
        return target.loss(log_sum, own - max, all);
    }

    // Sets `max`; returns this thread's sum of exponentials of differences to it. While the row is read, the
    // differences are those to the largest score so far.
    template <class Keep> OWN float peak_and_sum(const T* row, int classes, float* scratch, const Keep& keep) {
        float most = -loss_infinity(), sum = 0.0f;
        each_group<4>(row, classes, [&](int col, const Group& x) {
            keep(col, x);
            LossPeak<T, V> peak;
            peak.add(x);
            const float largest = MaxOrNan::of(most, peak.value());
            // Scores of minus infinity add nothing to the sum, whatever the difference is to.
            const float base = largest == -loss_infinity() ? 0.0f : largest;
            if (largest != most) sum *= exp_of(most - base);
            most = largest;
            float v[V];
            x.widen(v);
#pragma unroll
            for (int j = 0; j < V; ++j) sum += exp_of(v[j] - base);
        });
        max = block_reduce<MaxOrNan, THREADS>(most, scratch);
        return sum * exp_of(most - max);
    }

    // Writes `f(probability, whether it is the label's)`; then `next`, if it is not null, is in shared memory soon if
    // COPIES.
    template <class F> OWN void write(const Target& target, T* to, int label, F f, const T* next, T* held) const {
        const auto probability = [&](float score) {
            if constexpr (sizeof(T) < 4)
                return exp2_approximate(fmaf(score - max, TO_BASE_2, -log_sum * TO_BASE_2));
            else return exp_of(score - max - log_sum);
        };
        each_group(scores, target.classes(), [&](int col, const Group& x) {
            float v[V];
            x.widen(v);
#pragma unroll
            for (int j = 0; j < V; ++j) v[j] = f(probability(v[j]), false);
            if ((u32)(label - col) < (u32)V) {
                const float of_label = f(probability(own), true);
#pragma unroll
                for (int j = 0; j < V; ++j)
                    if (col + j == label) v[j] = of_label;
            }
            Group out;
            out.narrow(v);
            out.put(to + col);
            if constexpr (COPIES)
                if (next != nullptr) copy_async<BYTES>(held + col, next + col, true);
        });
        if constexpr (COPIES) copy_commit();
    }
};

// ---------------------------------------- softmax with cross entropy

// Slots: 0 logits [rows, classes] T, 1 labels [rows] i32, 2 row_loss [rows] float, 3 probs [rows, classes] T; probs may
// share the memory of logits. LANES threads share a row: up to 32 hold a row of at most 1024 classes in registers; with
// LANES = THREADS, a block processes one row at a time. Accesses are as wide as rows allow, up to 16 bytes. Overwrites;
// deterministic. Moves logits and probs once.
template <class T, i64 ROWS, i64 CLASSES, u64 SMOOTHING, int LANES, int THREADS_,
    int V = (LANES > 32) ? vec_width<T>(CLASSES) : loss_width<T>(CLASSES), int ITERS = loss_turns(CLASSES, LANES, V)>
struct SoftmaxCe {
    using Slots = slots::softmax_ce;
    using Target = LossTarget<CLASSES, SMOOTHING, 2>;
    static constexpr int PHASES = 1, THREADS = THREADS_;
    static constexpr int GROUPS = THREADS / LANES;
    static constexpr int blocks(int) { return ceil_div(ROWS, GROUPS); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(Number<ROWS, 0>(a), GROUPS); }
    static constexpr int smem(int) { return LANES > 32 ? 128 : 0; }
    static constexpr i64 WORK = 0;
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Number<ROWS, 0> rows(a);
        const Target target(a);
        const int row = block * GROUPS + threadIdx.x / LANES, lane = threadIdx.x % LANES;
        const bool valid = row < rows;
        const T* logits = a.at<T>(Slots::LOGITS) + (i64)row * target.classes();
        const int label = valid ? a.at<int>(Slots::LABELS)[row] : 0;
        T* probs = a.has(Slots::PROBS) && valid ? a.at<T>(Slots::PROBS) + (i64)row * target.classes() : nullptr;
        bool right;
        float loss;
        if constexpr (LANES > 32) {
            LossWideRow<T, Target, THREADS, V, false> scores;
            loss = scores.softmax(target, logits, label, right, (float*)smem, nullptr);
            if (probs != nullptr)
                scores.write(target, probs, label, [](float p, bool) { return p; }, nullptr, nullptr);
        } else {
            LossRow<T, Target, LANES, V, ITERS> scores;
            scores.read(target, logits, lane, valid);
            loss = scores.softmax(target, lane, label, right);
            if (probs != nullptr) scores.write(target, probs, lane, [](float p, int) { return p; });
        }
        if (valid && lane == 0 && a.has(Slots::ROW_LOSS)) a.at<float>(Slots::ROW_LOSS)[row] = loss;
    }
};

// Slots: 0 probs [rows, classes] T, 1 labels [rows] i32, 2 dlogits [rows, classes] T, 3 scale [1] float; dlogits may
// share the memory of probs. `dlogits = (probs - target) / rows * scale`. Two groups of up to 16 bytes a thread, 256
// threads a block. Overwrites; deterministic.
template <class T, i64 ROWS, i64 CLASSES, u64 SMOOTHING, int V = vec_width<T>(CLASSES)> struct SoftmaxCeGrad {
    using Slots = slots::softmax_ce_grad;
    using Rows = Number<ROWS, 0>;
    using Target = LossTarget<CLASSES, SMOOTHING, 2>;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr int EACH = ROWS == LARGE || (is_fixed(ROWS) && ROWS * (CLASSES / V) > 100000) ? 2 : 1;
    static constexpr int blocks_of(i64 rows, i64 classes) { return ceil_div(rows * (classes / V), THREADS * EACH); }
    static constexpr int blocks(int) { return blocks_of(ROWS, CLASSES); }
    DEV int blocks_for(const Args& a, int) { return blocks_of(Rows(a), Number<CLASSES, 1>(a)); }
    static constexpr int smem(int) { return 0; }
    static constexpr i64 WORK = 0;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const Rows rows(a);
        const Target target(a);
        const int row_vecs = target.classes() / V;
        const i64 vecs = rows * row_vecs;
        const float scale = (a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f) / rows;
        Vec<T, V> p[EACH];
        int label[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const i64 at = (i64)block * (THREADS * EACH) + e * THREADS + threadIdx.x;
            if (at >= vecs) continue;
            p[e] = load<T, V>(a.at<T>(Slots::PROBS) + at * V);
            label[e] = a.at<int>(Slots::LABELS)[row_of(at, row_vecs, vecs)];
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const i64 at = (i64)block * (THREADS * EACH) + e * THREADS + threadIdx.x;
            if (at >= vecs) continue;
            const int col = (int)(at - (i64)row_of(at, row_vecs, vecs) * row_vecs) * V;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float wanted = target.of(label[e], col + j);
                p[e].v[j] = narrow<T>((to_float(p[e].v[j]) - wanted) * scale);
            }
            store<T, V>(a.at<T>(Slots::DLOGITS) + at * V, p[e]);
        }
    }
    // A division by a constant takes one multiplication in 32 bits, but several in 64 bits.
    DEV int row_of(i64 at, int row_vecs, i64 vecs) {
        return vecs < 0x7fffffff ? (int)((u32)at / row_vecs) : (int)(at / row_vecs);
    }
};

// Slots: 0 logits [rows, classes] T, 1 labels [rows] i32, 2 dlogits [rows, classes] T or unbound, 3 loss [1] float, 4
// accuracy [1] float or unbound, 5 work, 6 scale [1] float, 7 ticket u32; dlogits may share the memory of logits. Mean
// loss, share of right answers and `dlogits = (softmax - target) / (rows PARTS) * scale`: the rows are one of PARTS
// parts of a batch. LANES as for `SoftmaxCe`; BLOCKS blocks stride over the rows, and each group of threads has up to
// four rows in flight. With one block neither work nor ticket is used; otherwise work holds two floats for each block
// and the last block adds them up. Overwrites; deterministic. Moves logits and dlogits once.
template <class T, i64 ROWS, i64 CLASSES, u64 SMOOTHING, int LANES, int THREADS_, i64 BLOCKS,
    int V = (LANES > 32) ? vec_width<T>(CLASSES) : loss_width<T>(CLASSES), int ITERS = loss_turns(CLASSES, LANES, V),
    int PARTS = 1>
struct SoftmaxCeFused : LossInOneLaunch<2, BLOCKS, 2, THREADS_> {
    using Slots = slots::softmax_ce_fused;
    using Blocks = LossBlocks<BLOCKS, 2>;
    static constexpr int THREADS = THREADS_;
    using Target = LossTarget<CLASSES, SMOOTHING, 3>;
    // Whether a row that a block shares is kept in shared memory: up to 99 KB, which every supported GPU offers.
    static constexpr i64 KEPT = is_fixed(CLASSES) && LANES > 32 ? CLASSES * (i64)sizeof(T) : 0;
    static constexpr bool HELD = KEPT > 0 && loss_smem<2>() + KEPT <= 99 * 1024;
    static constexpr int MIN_BLOCKS = LANES > 32 && THREADS <= 512 ? 2 : 0;
    static constexpr int smem(int) { return loss_smem<2>() + (HELD ? (int)KEPT : 0); }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Number<ROWS, 0> rows(a);
        const Blocks count(a);
        const Target target(a);
        const int blocks = (int)count, classes = target.classes();
        const float scale = (a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f) / (rows * PARTS);
        const T* logits = a.at<T>(Slots::LOGITS);
        const int* labels = a.at<int>(Slots::LABELS);
        T* dlogits = a.at<T>(Slots::DLOGITS);
        // Loss and number of correct answers; one thread counts each row.
        float sums[2] = {0.0f, 0.0f};
        if constexpr (LANES > 32) {
            LossWideRow<T, Target, THREADS, V, HELD> scores;
            T* const held = (T*)(smem + loss_smem<2>());
            scores.prefetch(block < rows ? logits + (i64)block * classes : nullptr, held, classes);
            for (int row = block; row < rows; row += blocks) {
                const i64 at = (i64)row * classes;
                const int label = labels[row];
                const T* const next = row + blocks < rows ? logits + at + (i64)blocks * classes : nullptr;
                bool right;
                const float loss = scores.softmax(target, logits + at, label, right, (float*)smem, held);
                if (threadIdx.x == 0) sums[0] += loss, sums[1] += right ? 1.0f : 0.0f;
                if (dlogits != nullptr)
                    scores.write(
                        target, dlogits + at, label,
                        [&](float p, bool own) { return (p - target.of_label(label, own)) * scale; }, next, held);
                else scores.prefetch(next, held, classes);
            }
            __syncthreads();
        } else {
            using Row = LossRow<T, Target, LANES, V, ITERS>;
            constexpr int GROUPS = THREADS / LANES;
            // A general member has one row in flight: usually it has no more.
            constexpr int FLIGHT = !is_fixed(ROWS) ? 1
                : min_i(ceil_div(ROWS, (i64)GROUPS * BLOCKS), Row::N <= 4 ? 4 : Row::N <= 8 ? 2 : 1);
            const int rounds = ceil_div(rows, (i64)GROUPS * blocks);
            const int lane = threadIdx.x % LANES, first = block * GROUPS + threadIdx.x / LANES;
            // Groups past the end compute rows that do not exist, so that whole warps take part in the shuffles.
#pragma unroll 1
            for (int round = 0; round < rounds; round += FLIGHT) {
                Row scores[FLIGHT];
                int label[FLIGHT];
#pragma unroll
                for (int f = 0; f < FLIGHT; ++f) {
                    const i64 row = first + (i64)(round + f) * (GROUPS * blocks);
                    label[f] = row < rows ? labels[row] : 0;
                    scores[f].read(target, logits + row * classes, lane, row < rows);
                }
#pragma unroll
                for (int f = 0; f < FLIGHT; ++f) {
                    const i64 row = first + (i64)(round + f) * (GROUPS * blocks);
                    bool right;
                    const float loss = scores[f].softmax(target, lane, label[f], right);
                    if (row >= rows) continue;
                    if (lane == 0) sums[0] += loss, sums[1] += right ? 1.0f : 0.0f;
                    if (dlogits != nullptr)
                        scores[f].write(target, dlogits + row * classes, lane,
                            [&](float p, int col) { return (p - target.of(label[f], col)) * scale; });
                }
            }
        }
        if (loss_total<2, THREADS>(sums, count, a.at<float>(Slots::WORK), a.at<u32>(Slots::TICKET), block, smem)) {
            if (a.has(Slots::LOSS)) *a.at<float>(Slots::LOSS) = sums[0] / rows;
            if (a.has(Slots::ACCURACY)) *a.at<float>(Slots::ACCURACY) = sums[1] / rows;
        }
    }
};

// ---------------------------------------- a last layer with its loss

namespace head {

// The maximum over the warp; NaN if a positive NaN is among the values. The bits of floats, with the lower 31 bits of
// negative ones inverted, have the order of the floats when compared as integers.
DEV float warp_max(float v) {
    const int bits = __float_as_int(v), turn = 0x7fffffff;
    const int most = __reduce_max_sync(0xffffffffu, bits < 0 ? bits ^ turn : bits);
    return __int_as_float(most < 0 ? most ^ turn : most);
}

}  // namespace head

// Slots: 0 a [rows, features] T, 1 b [features, classes] T, 2 bias [classes] float or unbound, 3 labels [rows] i32, 4
// saved [rows, features] T, 5 scale [1] float, 6 dlogits [rows, classes] T, 7 row_loss [rows] float, 8 row_right [rows]
// float, 9 dx [rows, features] T. `scores = a b + bias`, the loss of each row and whether its answer is right, `dlogits
// = (softmax - target) / rows * scale`, `dx = dlogits b^T`, times the derivative of ACT_GRAD at `saved`, which is `a`
// if SAVED_IS_INPUT, and times the float with the bits KEPT. At most 32 classes. A block takes EACH_ROWS rows: its
// threads hold b in registers, each the rows of b for some features, and compute partial scores, which are summed in a
// fixed order. Scores and their gradient are float. Overwrites; deterministic. Moves a and dx once and b once for each
// block; b is loaded before the preceding launch is done if that launch does not write it.
//
// ROWS and FEATURES are the numbers 0 and 1, KEPT, SMOOTHING, the classes and ACT_GRAD the numbers 2 to 5. A general
// member is compiled for EACH, the features of a thread, and for CLASSES, the number of classes rounded up, whose
// power of two above must be the same; it reads their number, COUNT, and loads V neighbouring weights at once.
template <class T, i64 ROWS, i64 FEATURES, int CLASSES, u64 SMOOTHING, int ACT_GRAD, bool SAVED_IS_INPUT, u32 KEPT,
    int EACH_ROWS, int THREADS_, int EACH = ceil_div(FEATURES, THREADS_), i64 COUNT = CLASSES,
    int V = min_i(vec_width<T>(CLASSES), 4)>
struct DenseCe {
    using Slots = slots::dense_ce;
    static constexpr int PHASES = 1, THREADS = THREADS_, WARPS = THREADS / 32, P = power_above(CLASSES);
    static constexpr bool BEGINS = true;
    static constexpr i64 WORK = 0;
    static constexpr bool FIXED = is_fixed(ROWS);
    static_assert(CLASSES <= 32, "a warp holds the scores of a row");
    static constexpr int blocks(int) { return ceil_div(ROWS, EACH_ROWS); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(Number<ROWS, 0>(a), EACH_ROWS); }
    // The partial scores of the warps.
    static constexpr int smem(int) { return 4 * EACH_ROWS * P * WARPS; }
    using Target = LossTarget<COUNT, SMOOTHING, 3, 4>;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Target target(a);
        const int rows = (int)Number<ROWS, 0>(a), features = (int)Number<FEATURES, 1>(a);
        const int classes = target.classes();
        const Function<ACT_GRAD, 5> act(a);
        const u32 kept = (u32)Number<(KEPT == (u32)ANY ? ANY : (i64)KEPT), 2>(a);
        float* const shares = (float*)smem;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = block * EACH_ROWS;
        const auto feature = [](int e) { return (int)threadIdx.x + e * THREADS; };
        const auto inside = [&](int e) { return (FIXED && FEATURES % THREADS == 0) || feature(e) < features; };
        float w[EACH][CLASSES];
        const auto read_weight = [&] {
#pragma unroll
            for (int e = 0; e < EACH; ++e)
#pragma unroll
                for (int c = 0; c < CLASSES; c += V) {
                    Vec<T, V> v{};
                    if (inside(e) && (is_fixed(COUNT) || c < classes))
                        v = load<T, V>(a.at<T>(Slots::B) + feature(e) * classes + c);
#pragma unroll
                    for (int i = 0; i < V; ++i) w[e][c + i] = to_float(v.v[i]);
                }
        };
        const bool early = launch_flags(a) & EARLY_B;
        if (early) read_weight();
        begin(a);
        float x[EACH_ROWS][EACH], saved[EACH_ROWS][EACH];
#pragma unroll
        for (int r = 0; r < EACH_ROWS; ++r)
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const bool valid = inside(e) && ((FIXED && ROWS % EACH_ROWS == 0) || row0 + r < rows);
                const i64 at = (i64)(row0 + r) * features + feature(e);
                x[r][e] = valid ? to_float(a.at<T>(Slots::A)[at]) : 0.0f;
                saved[r][e] = x[r][e];
                if constexpr (ACT_GRAD != NONE && !SAVED_IS_INPUT)
                    saved[r][e] = valid ? to_float(a.at<T>(Slots::SAVED)[at]) : 0.0f;
            }
        // The data of the loss are loaded at the same time. A lane holds the score of a class; with fewer than 32
        // classes several lanes hold the same one.
        int label[EACH_ROWS];
#pragma unroll
        for (int r = 0; r < EACH_ROWS; ++r) label[r] = row0 + r < rows ? a.at<int>(Slots::LABELS)[row0 + r] : 0;
        const int own_class = lane % P;
        const float bias = a.has(Slots::BIAS) && own_class < classes ? a.at<float>(Slots::BIAS)[own_class] : 0.0f;
        const float scale = (a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f) / (float)rows;
        if (!early) read_weight();
#pragma unroll
        for (int r = 0; r < EACH_ROWS; ++r) {
            float share[P];
#pragma unroll
            for (int c = 0; c < P; ++c) share[c] = 0.0f;
#pragma unroll
            for (int e = 0; e < EACH; ++e)
#pragma unroll
                for (int c = 0; c < CLASSES; ++c) share[c] = fmaf(x[r][e], w[e][c], share[c]);
            const float sum = spread_reduce<Sum>(share);
            if (lane % (32 / P) == 0) shares[(r * WARPS + warp) * P + lane / (32 / P)] = sum;
        }
        __syncthreads();
        // Every warp computes the loss of every row, which is faster than sharing it.
#pragma unroll
        for (int r = 0; r < EACH_ROWS; ++r) {
            const int row = row0 + r;
            float score = bias;
#pragma unroll
            for (int k = 0; k < WARPS; ++k) score += shares[(r * WARPS + k) * P + own_class];
            if (own_class >= classes) score = -loss_infinity();
            const float max = head::warp_max(score), relative = score - max, e = loss_exp(relative);
            const float sum = warp_reduce<Sum, P>(e);
            const float grad = (__fdividef(e, sum) - target.of(label[r], own_class)) * scale;
            float grads[CLASSES];
#pragma unroll
            for (int c = 0; c < CLASSES; ++c) grads[c] = __shfl_sync(0xffffffffu, grad, c);
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                if (!inside(e) || ((!FIXED || ROWS % EACH_ROWS != 0) && row >= rows)) continue;
                float dx = 0.0f;
#pragma unroll
                for (int c = 0; c < CLASSES; ++c)
                    if (is_fixed(COUNT) || c < classes) dx = fmaf(grads[c], w[e][c], dx);
                if constexpr (KEPT != 0x3f800000u) dx *= __uint_as_float(kept);
                if constexpr (ACT_GRAD != NONE) {
                    float slope[] = {saved[r][e]};
                    act.template grad<T>(slope);
                    dx *= slope[0];
                }
                a.at<T>(Slots::DX)[(i64)row * features + feature(e)] = narrow<T>(dx);
            }
            // One warp does the rest.
            if (warp != r % WARPS || row >= rows) continue;
            const bool names = target.names_class(label[r]);
            const float own = names ? __shfl_sync(0xffffffffu, score, names ? label[r] : 0) : loss_nan();
            const bool wrong = own_class < classes && !(own_class < label[r] ? score < own : score <= own);
            const bool right = __ballot_sync(0xffffffffu, wrong) == 0;
            float all = 0.0f;
            if constexpr (Target::SMOOTH) all = warp_reduce<Sum, P>(own_class < classes ? relative : 0.0f);
            if (lane < classes) a.at<T>(Slots::DLOGITS)[(i64)row * classes + lane] = narrow<T>(grad);
            if (lane == 0) {
                a.at<float>(Slots::ROW_LOSS)[row] = target.loss(logf(sum), own - max, all);
                a.at<float>(Slots::ROW_RIGHT)[row] = right ? 1.0f : 0.0f;
            }
        }
    }
};

// ---------------------------------------- mean squared error

// Errors are multiplied by a power of two before they are squared, so that the sum of LEN squares does not overflow a
// float unless their mean does.
__host__ __device__ constexpr float error_scale(i64 len) {
    float scale = 1.0f;
    for (i64 size = 1; size < len; size *= 4) scale *= 0.5f;
    return scale;
}
// LEN (number 0) elements with the scale of their errors and the factor of their gradients. A general member computes
// them once.
template <i64 LEN> struct LossErrors {
    const Number<LEN, 0> len;
    float scale, factor;
    OWN explicit LossErrors(const Args& a) : len(a) {
        if constexpr (is_fixed(LEN)) {
            constexpr float SCALE = error_scale(LEN);
            scale = SCALE;
        } else scale = error_scale(len);
        factor = (float)(2.0 / len);
        if constexpr (!is_fixed(LEN)) asm volatile("" : "+f"(scale), "+f"(factor));
    }
    // The mean of the squares from the sum of the squares of scaled errors.
    OWN float mean_square(float sum) const { return sum / ((float)len * scale * scale); }
};

// The number of groups of 16 bytes that a thread has in flight, for this many threads.
template <class T> __host__ __device__ constexpr int error_flight(i64 len, i64 threads) {
    return min_i(4, max_i(1, (int)((len / (16 / (int)sizeof(T)) + threads - 1) / threads)));
}

// Calls `each` for this thread's pairs of an output and its target, out of `len`; writes the results to `dy` if it is
// not null, which may be the memory of `y`. The blocks stride over groups of 16 bytes, with FLIGHT of them in flight;
// if TAIL, block 0 handles the elements after the last whole group.
template <class T, int THREADS, int FLIGHT, bool TAIL, class Each>
DEV void loss_pairs(
    const i64 len, const i64 blocks, const T* y, const T* target, T* dy, int block, const Each& each) {
    constexpr int V = 16 / (int)sizeof(T);
    const i64 vecs = len / V, whole = vecs * V;
#pragma unroll 1
    for (i64 base = (i64)block * (THREADS * FLIGHT) + threadIdx.x; base < vecs;
        base += blocks * (THREADS * FLIGHT)) {
        Vec<T, V> have[FLIGHT], want[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; ++f) {
            const i64 at = base + f * THREADS;
            if (at >= vecs) continue;
            have[f] = load<T, V>(y + at * V);
            want[f] = load<T, V>(target + at * V);
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; ++f) {
            const i64 at = base + f * THREADS;
            if (at >= vecs) continue;
#pragma unroll
            for (int j = 0; j < V; ++j)
                have[f].v[j] = narrow<T>(each(to_float(have[f].v[j]), to_float(want[f].v[j])));
            if (dy != nullptr) store<T, V>(dy + at * V, have[f]);
        }
    }
    if constexpr (TAIL) {
        if (block == 0 && threadIdx.x < len - whole) {
            const i64 at = whole + threadIdx.x;
            const float gradient = each(to_float(y[at]), to_float(target[at]));
            if (dy != nullptr) dy[at] = narrow<T>(gradient);
        }
    }
}

// This thread's part of the sum of the squares of scaled `y - target`; writes `dy = factor (y - target)` if `dy` is not
// null.
template <class T, int THREADS, int FLIGHT, i64 LEN, class Blocks>
DEV float loss_errors(
    const LossErrors<LEN> errors, const Blocks count, const T* y, const T* target, T* dy, float factor, int block) {
    constexpr bool TAIL = !is_fixed(LEN) || LEN % (16 / (int)sizeof(T)) != 0;
    const float scale = errors.scale;
    float sum = 0.0f;
    loss_pairs<T, THREADS, FLIGHT, TAIL>(errors.len, count, y, target, dy, block, [&](float have, float want) {
        const float error = have - want;
        const float scaled = error * scale;
        sum = fmaf(scaled, scaled, sum);
        return factor * error;
    });
    return sum;
}

// The same with the gradient of the mean of the squares, times the scale, for the slots of an operation.
template <class Slots, class T, int THREADS, int FLIGHT, i64 LEN, class Blocks>
DEV float loss_errors_with_gradient(const Args& a, const LossErrors<LEN> errors, const Blocks count, int block) {
    const float factor = errors.factor * (a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f);
    return loss_errors<T, THREADS, FLIGHT>(
        errors, count, a.at<T>(Slots::Y), a.at<T>(Slots::TARGET), a.at<T>(Slots::DY), factor, block);
}

// Slots: 0 y [len] T, 1 target [len] T, 2 loss [1] float, 3 work.
// One block, or two phases with one partial sum for each block. Overwrites; deterministic. Moves y and target once.
template <class T, i64 LEN, int THREADS_, i64 BLOCKS, int FLIGHT = error_flight<T>(LEN, THREADS_ * BLOCKS)>
struct Mse : LossInPhases<BLOCKS, THREADS_> {
    using Loss = LossInPhases<BLOCKS, THREADS_>;
    using Slots = slots::mse;
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const LossErrors<LEN> errors(a);
        const typename Loss::Blocks count(a);
        const auto share = [&] {
            return loss_errors<T, THREADS_, FLIGHT>(
                errors, count, a.at<T>(Slots::Y), a.at<T>(Slots::TARGET), (T*)nullptr, 0.0f, block);
        };
        const auto mean = [&](float sum) { return errors.mean_square(sum); };
        Loss::template finish<PHASE, Slots>(a, count, block, smem, share, mean);
    }
};

// Slots: 0 y [len] T, 1 target [len] T, 2 dy [len] T, 3 scale [1] float; dy may share the memory of y.
// `dy = 2 / len (y - target) scale`. Overwrites; deterministic. Moves y, target and dy once.
template <class T, i64 LEN, int THREADS_, i64 BLOCKS, int FLIGHT = error_flight<T>(LEN, THREADS_ * BLOCKS)>
struct MseGrad : LossInOneLaunch<0, BLOCKS, 1, THREADS_> {
    using Slots = slots::mse_grad;
    static constexpr bool BEGINS = !is_fixed(LEN);
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const LossErrors<LEN> errors(a);
        if constexpr (BEGINS) begin(a);
        loss_errors_with_gradient<Slots, T, THREADS_, FLIGHT>(a, errors, LossBlocks<BLOCKS, 1>(a), block);
    }
};

// Slots: 0 y [len] T, 1 target [len] T, 2 dy [len] T or unbound, 3 loss [1] float, 4 work, 5 scale [1] float, 6 ticket
// u32; dy may share the memory of y. `Mse` and `MseGrad` in one launch. With one block neither work nor ticket is used;
// otherwise work holds one float for each block and the last block adds them up. Overwrites; deterministic. Moves y,
// target and dy once.
template <class T, i64 LEN, int THREADS_, i64 BLOCKS, int FLIGHT = error_flight<T>(LEN, THREADS_ * BLOCKS)>
struct MseFused : LossInOneLaunch<1, BLOCKS, 1, THREADS_> {
    using Slots = slots::mse_fused;
    static constexpr bool BEGINS = !is_fixed(LEN);
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const LossErrors<LEN> errors(a);
        if constexpr (BEGINS) begin(a);
        const LossBlocks<BLOCKS, 1> count(a);
        float sum[1] = {loss_errors_with_gradient<Slots, T, THREADS_, FLIGHT>(a, errors, count, block)};
        if (loss_total<1, THREADS_>(sum, count, a.at<float>(Slots::WORK), a.at<u32>(Slots::TICKET), block, smem) &&
            a.has(Slots::LOSS))
            *a.at<float>(Slots::LOSS) = errors.mean_square(sum[0]);
    }
};

// ---------------------------------------- other functions of an output and its target

enum PointFn { BINARY_CE = 0, L1 = 1, HUBER = 2 };

// A function of an output and its target, and its derivative by the output. DELTA holds the bits of an f64, or is
// number 2: the error at which the Huber loss becomes linear.
template <int FUNC, u64 DELTA> struct PointTerm {
    const LossReal<DELTA, 2> real;
    OWN explicit PointTerm(const Args& a) : real(a) {}
    OWN float delta() const { return (float)real.value(); }
    OWN float value(float y, float t) const {
        if constexpr (FUNC == BINARY_CE) return (y > 0.0f || y != y ? y : 0.0f) - y * t + log1pf(expf(-fabsf(y)));
        const float distance = fabsf(y - t);
        if constexpr (FUNC == L1) return distance;
        return distance <= delta() ? 0.5f * distance * distance : delta() * (distance - 0.5f * delta());
    }
    OWN float slope(float y, float t) const {
        if constexpr (FUNC == BINARY_CE) return sigmoid(y) - t;
        const float error = y - t;
        // Zero and NaN are returned unchanged.
        if constexpr (FUNC == L1) return error > 0.0f ? 1.0f : error < 0.0f ? -1.0f : error;
        return error > delta() ? delta() : error < -delta() ? -delta() : error;
    }
    // Whether a yes-or-no answer is right; NaN never is.
    DEV float right(float y, float t) { return (t > 0.5f ? y > 0.0f : y <= 0.0f) ? 1.0f : 0.0f; }
};

// Adds this thread's values and its number of right answers to `sums`; writes `dy = factor f'(y, target)` if `dy` is
// not null.
template <class Term, class T, int THREADS, int FLIGHT, i64 LEN, class Blocks>
DEV void point_terms(const Term term, const Number<LEN, 0> len, const Blocks count, const T* y, const T* target, T* dy,
    float factor, int block, float (&sums)[2]) {
    constexpr bool TAIL = !is_fixed(LEN) || LEN % (16 / (int)sizeof(T)) != 0;
    loss_pairs<T, THREADS, FLIGHT, TAIL>(len, count, y, target, dy, block, [&](float have, float want) {
        sums[0] += term.value(have, want);
        sums[1] += Term::right(have, want);
        return factor * term.slope(have, want);
    });
}

// The same with the gradient of the mean, times the scale, for the slots of an operation.
template <class Term, class Slots, class T, int THREADS, int FLIGHT, i64 LEN, class Blocks>
DEV void point_terms_with_gradient(
    const Args& a, const Number<LEN, 0> len, const Blocks count, int block, float (&sums)[2]) {
    const float factor = (float)(1.0 / len) * (a.has(Slots::SCALE) ? *a.at<float>(Slots::SCALE) : 1.0f);
    point_terms<Term, T, THREADS, FLIGHT>(Term(a),
        len, count, a.at<T>(Slots::Y), a.at<T>(Slots::TARGET), a.at<T>(Slots::DY), factor, block, sums);
}

// Slots: 0 y [len] T, 1 target [len] T, 2 loss [1] float, 3 work.
// The mean of the function; like `Mse`.
template <int FUNC, u64 DELTA, class T, i64 LEN, int THREADS_, i64 BLOCKS,
    int FLIGHT = error_flight<T>(LEN, THREADS_ * BLOCKS)>
struct PointLoss : LossInPhases<BLOCKS, THREADS_> {
    using Loss = LossInPhases<BLOCKS, THREADS_>;
    using Slots = slots::point_loss;
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Number<LEN, 0> len(a);
        const typename Loss::Blocks count(a);
        const auto share = [&] {
            float sums[2] = {0.0f, 0.0f};
            using Term = PointTerm<FUNC, DELTA>;
            point_terms<Term, T, THREADS_, FLIGHT>(Term(a), len, count,
                a.at<T>(Slots::Y), a.at<T>(Slots::TARGET), (T*)nullptr, 0.0f, block, sums);
            return sums[0];
        };
        const auto mean = [&](float sum) { return sum / (float)(i64)len; };
        Loss::template finish<PHASE, Slots>(a, count, block, smem, share, mean);
    }
};

// Slots: 0 y [len] T, 1 target [len] T, 2 dy [len] T, 3 scale [1] float; dy may share the memory of y.
// `dy = f'(y, target) / len scale`; like `MseGrad`.
template <int FUNC, u64 DELTA, class T, i64 LEN, int THREADS_, i64 BLOCKS,
    int FLIGHT = error_flight<T>(LEN, THREADS_ * BLOCKS)>
struct PointLossGrad : LossInOneLaunch<0, BLOCKS, 1, THREADS_> {
    using Slots = slots::point_loss_grad;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        float sums[2] = {0.0f, 0.0f};
        point_terms_with_gradient<PointTerm<FUNC, DELTA>, Slots, T, THREADS_, FLIGHT>(
            a, Number<LEN, 0>(a), LossBlocks<BLOCKS, 1>(a), block, sums);
    }
};

// Slots: 0 y [len] T, 1 target [len] T, 2 dy [len] T or unbound, 3 loss [1] float, 4 accuracy [1] float, 5 work, 6
// scale [1] float, 7 ticket u32; dy may share the memory of y. All of the above and `BinaryAccuracy` in one launch;
// like `MseFused`, with two floats of work for each block.
template <int FUNC, u64 DELTA, class T, i64 LEN, int THREADS_, i64 BLOCKS,
    int FLIGHT = error_flight<T>(LEN, THREADS_ * BLOCKS)>
struct PointLossFused : LossInOneLaunch<2, BLOCKS, 1, THREADS_> {
    using Slots = slots::point_loss_fused;
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Number<LEN, 0> len(a);
        const LossBlocks<BLOCKS, 1> count(a);
        float sums[2] = {0.0f, 0.0f};
        point_terms_with_gradient<PointTerm<FUNC, DELTA>, Slots, T, THREADS_, FLIGHT>(a, len, count, block, sums);
        if (loss_total<2, THREADS_>(sums, count, a.at<float>(Slots::WORK), a.at<u32>(Slots::TICKET), block, smem)) {
            if (a.has(Slots::LOSS)) *a.at<float>(Slots::LOSS) = sums[0] / (float)(i64)len;
            if (a.has(Slots::ACCURACY)) *a.at<float>(Slots::ACCURACY) = sums[1] / (float)(i64)len;
        }
    }
};

// Slots: 0 y [len] T, 1 target [len] T, 2 accuracy [1] float.
// The share of right answers, by one block. Overwrites; deterministic.
template <class T, i64 LEN, int THREADS_> struct BinaryAccuracy {
    using Slots = slots::binary_accuracy;
    static constexpr int PHASES = 1, THREADS = THREADS_;
    static constexpr int blocks(int) { return 1; }
    DEV int blocks_for(const Args&, int) { return 1; }
    static constexpr int smem(int) { return loss_smem<2>(); }
    static constexpr i64 WORK = 0;
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Number<LEN, 0> len(a);
        float sums[2] = {0.0f, 0.0f};
        for (i64 i = threadIdx.x; i < len; i += THREADS)
            sums[1] +=
                PointTerm<BINARY_CE, 0>::right(to_float(a.at<T>(Slots::Y)[i]), to_float(a.at<T>(Slots::TARGET)[i]));
        loss_block_sum<2, THREADS>(sums, (float*)smem);
        if (threadIdx.x == 0) *a.at<float>(Slots::ACCURACY) = sums[1] / (float)(i64)len;
    }
};

// ---------------------------------------- functions by themselves

// y [LEN] = e^x, or the logarithm of x if LOG, of x [LEN], by the functions that the losses use. Floats; overwrites. No
// step runs this: it measures the accuracy of these functions. Slots: x, y.
template <bool LOG, i64 LEN> struct LossFunction {
    using Slots = slots::act;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return ceil_div(LEN, THREADS); }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 at = (i64)block * THREADS + threadIdx.x;
        if (at >= LEN) return;
        const float x = a.at<float>(Slots::X)[at];
        a.at<float>(Slots::Y)[at] = LOG ? logf(x) : loss_exp(x);
    }
};
