// Matrix products: c[M, N] = a b. The epilogue (previous value, bias, activation or an activation's derivative) is
// applied before the only store.
//
// GEMM_NN: a [M, K], b [K, N] (forward). GEMM_NT: a [M, K], b [N, K] (input gradient). GEMM_TN: a [K, M], b [K, N]
// (weight gradient, c float). a, b, saved, z are of type T; bias is float; c is T, float under GEMM_TN. Slots: a, b,
// bias, saved, c_prev, c, z, work.
//
// Three kernels share the epilogues. The first two differ only in the arithmetic; the third, for products of a few
// microseconds, is at the end of the file. A block computes one BM x BN tile. Its threads form groups; each group has a
// range of k, a ring of buffers in shared memory that it fills with asynchronous copies as far ahead as fits, and
// accumulators for the whole tile. Groups of one warp never wait for another warp before the end. At the end the
// accumulators of the groups are written to shared memory, summed in a fixed order, passed through the epilogue and
// stored in rows. With SPLIT > 1 blocks divide k as well: phase 0 writes partial products [SPLIT, M, N] to `work`, and
// phase 1 sums them in a fixed order and applies the epilogue. Results are deterministic: no atomics.
//
// M, N, K and SPLIT are the numbers 0 to 3 of the first two kernels, and number 4 holds the functions of an epilogue,
// or the address of the constants of an update. Any M, N, K from 1 up. Asynchronous copies have 16, 8 or 4 bytes, as
// the row length of a factor allows; rows of an odd number of 16-bit elements use plain loads.

enum GemmTrans { GEMM_NN = 0, GEMM_NT = 1, GEMM_TN = 2 };

namespace gemm {

// The shared memory that a ring may use; two blocks of this size fit a multiprocessor of compute capability 9.0.
constexpr int RING_LIMIT = 96 * 1024;

template <bool YES, class A, class B> struct Choose { using Type = A; };
template <class A, class B> struct Choose<false, A, B> { using Type = B; };
template <class T> struct IsBf16 { static constexpr bool YES = false; };
template <> struct IsBf16<bf16> { static constexpr bool YES = true; };

// The extents of a product, and the number of blocks that divide k.
template <i64 M, i64 N, i64 K, i64 SPLIT> struct Extents {
    static constexpr bool FIXED = is_fixed(M) && is_fixed(N) && is_fixed(SPLIT);
    const Size<M, 0> m;
    const Size<N, 1> n;
    const Size<K, 2> k;
    const Size<SPLIT, 3> split;
    __device__ __forceinline__ explicit Extents(const Args& a) : m(a), n(a), k(a), split(a) {}
};

// ---------------------------------------- epilogues

// The epilogue of V neighbouring elements. `fetch` may be called long before `finish`, so that its loads overlap with
// the product.
template <class T, class Out, bool ACC, class Epi, int V> struct Tail {
    float bias[V], saved[V], previous[V];

    // The product has rows of `n` elements.
    __device__ __forceinline__ void fetch(const Args& a, int n, i64 row, int col) {
        const i64 at = row * n + col;
        if constexpr (Epi::BIAS) {
            const Vec<float, V> v = load<float, V>(a.at<float>(slots::product::BIAS) + col);
#pragma unroll
            for (int i = 0; i < V; ++i) bias[i] = v.v[i];
        }
        if constexpr (Epi::ACT_GRAD != NONE) {
            const Vec<T, V> v = load<T, V>(a.at<T>(slots::product::SAVED) + at);
#pragma unroll
            for (int i = 0; i < V; ++i) saved[i] = to_float(v.v[i]);
        }
        if constexpr (ACC) {
            const Vec<Out, V> v = load<Out, V>(a.at<Out>(slots::product::C_PREV) + at);
#pragma unroll
            for (int i = 0; i < V; ++i) previous[i] = to_float(v.v[i]);
        }
    }

    // The results, and the values before the activation if these are kept.
    __device__ __forceinline__ Vec<Out, V> results(
        const Args& a, const Vec<float, V>& product, Vec<T, V>& before) const {
        float v[V], s[V], z[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            v[i] = product.v[i];
            if constexpr (ACC) v[i] += previous[i];
            s[i] = Epi::ACT_GRAD != NONE ? saved[i] : 0.0f;
        }
        Epi::template apply<float>(a, v, bias, s, z);
        Vec<Out, V> out;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            out.v[i] = narrow<Out>(v[i]);
            if constexpr (Epi::SAVE_Z) before.v[i] = narrow<T>(z[i]);
        }
        return out;
    }

    __device__ __forceinline__ void finish(
        const Args& a, int n, i64 row, int col, const Vec<float, V>& product, UpdateSum&) const {
        const i64 at = row * n + col;
        Vec<T, V> before;
        const Vec<Out, V> out = results(a, product, before);
        if constexpr (Epi::SAVE_Z) {
            if (a.has(slots::product::Z)) store<T, V>(a.at<T>(slots::product::Z) + at, before);
        }
        store<Out, V>(a.at<Out>(slots::product::C) + at, out);
    }
};

// The epilogue of a product that is the gradient of a weight: instead of storing the gradient, it updates the weight by
// Rule. The metrics of tiles of GRAIN by 16 elements are written to the partial metrics, row by row. ALONE: a block has
// a multiprocessor to itself, and all loads of the reduction in flight at once. Constants that a general member reads
// are at the address that is number 4.
template <class Rule, int GRAIN, bool ALONE> struct Stepping : Epilogue<false, NONE, false, NONE> {};

template <class T, class Rule, int GRAIN, bool ALONE, int V>
struct Tail<T, float, false, Stepping<Rule, GRAIN, ALONE>, V> {
    Rule rule;
    Vec<float, V> param, state[2];

    __device__ __forceinline__ void fetch(const Args& a, int n, i64 row, int col) {
        const i64 at = row * n + col;
        rule.read(a);
        if constexpr (Rule::WORDS > 0) rule.read_constants((const u32*)(i64)Number<ANY, 4>(a));
        param = load<float, V>(a.at<float>(Rule::PARAM) + at);
#pragma unroll
        for (int s = 0; s < Rule::STATES; ++s) state[s] = load<float, V>(a.at<float>(Rule::STATE + s) + at);
    }

    __device__ __forceinline__ void finish(
        const Args& a, int n, i64 row, int col, const Vec<float, V>& product, UpdateSum& sum) const {
        const i64 at = row * n + col;
        Vec<float, V> p = param, s0 = state[0], s1 = state[1];
        Vec<T, V> copy;
        float change[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            p.v[i] = rule.step(param.v[i], product.v[i], s0.v[i], s1.v[i]);
            change[i] = p.v[i] - param.v[i];
            copy.v[i] = narrow<T>(p.v[i]);
        }
        sum.count_all(change, product.v);
        store<float, V>(a.at<float>(Rule::PARAM) + at, p);
        if constexpr (Rule::STATES > 0) store<float, V>(a.at<float>(Rule::STATE) + at, s0);
        if constexpr (Rule::STATES > 1) store<float, V>(a.at<float>(Rule::STATE + 1) + at, s1);
        if (a.has(StepSlots<Rule>::SHADOW)) store<T, V>(a.at<T>(StepSlots<Rule>::SHADOW) + at, copy);
    }
};

// The epilogue of a product whose rows, of COLS elements, are normalised as by `LayerNorm`. It writes the results of
// the normalisation in addition to the product. A row belongs to neighbouring lanes. EPS holds the bits of an f64.
// Slots: those of a product that it uses, and those of `gemm_norm`.
template <bool BIAS, u64 EPS, bool RMS, int COLS> struct Normalising : Epilogue<BIAS, NONE, false, NONE> {};

template <class T, class Out, bool ACC, bool BIAS, u64 EPS, bool RMS, int COLS, int V>
struct Tail<T, Out, ACC, Normalising<BIAS, EPS, RMS, COLS>, V> {
    using Slots = slots::gemm_norm;
    static constexpr int LANES = COLS / V;
    Tail<T, Out, ACC, Epilogue<BIAS, NONE, false, NONE>, V> plain;
    Vec<float, V> gamma, beta;

    __device__ __forceinline__ void fetch(const Args& a, int n, i64 row, int col) {
        plain.fetch(a, n, row, col);
        gamma = load<float, V>(a.at<float>(Slots::GAMMA) + col);
        if constexpr (!RMS) beta = load<float, V>(a.at<float>(Slots::BETA) + col);
    }

    __device__ __forceinline__ void finish(
        const Args& a, int n, i64 row, int col, const Vec<float, V>& product, UpdateSum&) const {
        const i64 at = row * n + col;
        Vec<T, V> before;
        const Vec<Out, V> out = plain.results(a, product, before);
        store<Out, V>(a.at<Out>(Slots::C) + at, out);
        const int lane = threadIdx.x % 32;
        float d[V], sum = 0.0f, square = 0.0f;
        const float first = to_float(out.v[0]);
        const float origin = RMS ? 0.0f : __shfl_sync(0xffffffffu, first, lane / LANES * LANES);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            d[i] = to_float(out.v[i]) - origin;
            if constexpr (!RMS) sum += d[i];
        }
        const float mean = RMS ? 0.0f : warp_reduce<Sum, LANES>(sum) * (1.0f / (float)COLS);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            d[i] -= mean;
            square = fmaf(d[i], d[i], square);
        }
        const float variance = warp_reduce<Sum, LANES>(square) * (1.0f / (float)COLS);
        const float rstd = rsqrtf(variance + (float)__longlong_as_double((i64)EPS));
        Vec<T, V> y;
#pragma unroll
        for (int i = 0; i < V; ++i) y.v[i] = narrow<T>(fmaf(d[i] * rstd, gamma.v[i], RMS ? 0.0f : beta.v[i]));
        store<T, V>(a.at<T>(Slots::Y) + at, y);
        if (lane % LANES != 0) return;
        if (!RMS && a.has(Slots::MEAN)) a.at<float>(Slots::MEAN)[row] = origin + mean;
        if (a.has(Slots::RSTD)) a.at<float>(Slots::RSTD)[row] = rstd;
    }
};

// The epilogue of a product that is the gradient of normalised rows: it also writes the gradient of the rows before the
// normalisation, as by `LayerNormBwd`. Slots: those of `gemm_norm_bwd`.
template <bool RMS, int COLS> struct NormGradient : Epilogue<false, NONE, false, NONE> {};

template <class T, class Out, bool RMS, int COLS, int V> struct Tail<T, Out, false, NormGradient<RMS, COLS>, V> {
    using Slots = slots::gemm_norm_bwd;
    static constexpr int LANES = COLS / V;
    Vec<T, V> x, residual;
    Vec<float, V> gamma;
    float mean, rstd;
    bool adds;

    __device__ __forceinline__ void fetch(const Args& a, int n, i64 row, int col) {
        const i64 at = row * n + col;
        x = load<T, V>(a.at<T>(Slots::X) + at);
        gamma = load<float, V>(a.at<float>(Slots::GAMMA) + col);
        adds = a.has(Slots::RESIDUAL);
        if (adds) residual = load<T, V>(a.at<T>(Slots::RESIDUAL) + at);
        mean = RMS ? 0.0f : a.at<float>(Slots::MEAN)[row];
        rstd = a.at<float>(Slots::RSTD)[row];
    }

    __device__ __forceinline__ void finish(
        const Args& a, int n, i64 row, int col, const Vec<float, V>& product, UpdateSum&) const {
        const i64 at = row * n + col;
        Vec<Out, V> out;
        float g[V], normal[V], sum = 0.0f, along = 0.0f;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            out.v[i] = narrow<Out>(product.v[i]);
            normal[i] = (to_float(x.v[i]) - mean) * rstd;
            g[i] = to_float(out.v[i]) * gamma.v[i];
            if constexpr (!RMS) sum += g[i];
            along = fmaf(g[i], normal[i], along);
        }
        store<Out, V>(a.at<Out>(Slots::C) + at, out);
        if constexpr (!RMS) sum = warp_reduce<Sum, LANES>(sum) * (1.0f / (float)COLS);
        along = warp_reduce<Sum, LANES>(along) * (1.0f / (float)COLS);
        Vec<T, V> dx;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float own = rstd * fmaf(-normal[i], along, g[i] - sum);
            dx.v[i] = narrow<T>(adds ? own + to_float(residual.v[i]) : own);
        }
        store<T, V>(a.at<T>(Slots::DX) + at, dx);
    }
};

// The number of elements of a row, if an epilogue needs whole rows; otherwise 0.
template <class Epi> struct WholeRow { static constexpr int COLS = 0; };
template <bool BIAS, u64 EPS, bool RMS, int COLS_> struct WholeRow<Normalising<BIAS, EPS, RMS, COLS_>> {
    static constexpr int COLS = COLS_;
};
template <bool RMS, int COLS_> struct WholeRow<NormGradient<RMS, COLS_>> { static constexpr int COLS = COLS_; };

// The factors of a product, and the actions of a block when its tile at `row`, `col` is done.
template <class Epi> struct Ending {
    static constexpr int A = slots::product::A, B = slots::product::B;
    static constexpr bool ALONE = false;
    template <int BM, int BN, int THREADS, class E> DEV void close(const Args&, const E, int, int, const UpdateSum&) {}
};

template <class Rule, int GRAIN, bool ALONE_> struct Ending<Stepping<Rule, GRAIN, ALONE_>> {
    static constexpr bool ALONE = ALONE_;
    static constexpr int A = StepSlots<Rule>::A, B = StepSlots<Rule>::B;
    template <int BM, int BN, int THREADS, class E>
    DEV void close(const Args& a, const E extents, int row, int col, const UpdateSum& own) {
        if (!a.has(StepSlots<Rule>::PARTS)) return;
        constexpr int WARPS = THREADS / 32;
        const int high = ceil_div(extents.m, GRAIN), wide = ceil_div(extents.n, 16);
        static_assert(BM % GRAIN == 0 && BN % 16 == 0, "a block's tile is made of whole parts");
        __shared__ UpdateMetric of_warp[WARPS];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        UpdateSum sum = lanes_metric(own);
        if (lane == 0) of_warp[warp] = sum.stored();
        __syncthreads();
        if (warp != 0) return;
        sum = UpdateSum{0u, 0.0f, 0.0f};
        if (lane < WARPS) sum.add(of_warp[lane]);
        const UpdatePart all = lanes_metric<power_above(WARPS)>(sum).part();
        UpdatePart* const parts = a.at<UpdatePart>(StepSlots<Rule>::PARTS);
        constexpr int ACROSS = BN / 16;
        for (int i = lane; i < BM / GRAIN * ACROSS; i += 32) {
            const int r = row / GRAIN + i / ACROSS, c = col / 16 + i % ACROSS;
            if (r < high && c < wide) parts[r * wide + c] = i == 0 ? all : UpdatePart{0u, 0.0f};
        }
        if (row == 0 && col == 0) fill_parts(parts, high * wide);
    }
};

// The work of a block: the first row and column of its tile, and its range of k.
struct Place {
    int row, col, split;
};

// The largest number of neighbouring elements that an epilogue can process at once, in rows of `n` elements.
__host__ __device__ constexpr int end_width(i64 n) { return n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1; }
// The number that it does process, of a tile with `elements`: as few as give every thread some. A thread computes the
// functions of its elements one after the other, while idle threads would wait for it.
__host__ __device__ constexpr int end_share(int elements, int threads, int widest) {
    int width = widest;
    while (width > 1 && 2 * elements <= threads * width) width /= 2;
    return width;
}

// Whether an epilogue takes so long that idle threads should share it: curved functions and updates.
template <class Epi> constexpr bool COSTLY = Epi::ACT >= GELU || Epi::ACT_GRAD >= GELU;
template <class Rule, int GRAIN, bool ALONE> constexpr bool COSTLY<Stepping<Rule, GRAIN, ALONE>> = true;

// The tiles of a product and the output of a finished tile. GROUPS accumulators of a tile are in shared memory as
// [GROUPS, BM, PITCH] floats; the pitch keeps the rows of a matrix instruction's result in different banks.
template <class T, i64 M, i64 N, i64 K, int TRANS, bool ACC, class Epi, int BM, int BN, int GROUPS, i64 SPLIT,
    int THREADS, int WIDEST>
struct Tiles {
    using Out = typename Choose<TRANS == GEMM_TN, float, T>::Type;
    using E = Extents<M, N, K, SPLIT>;
    // A row of a normalisation belongs to neighbouring lanes of one warp.
    static constexpr int ROW = WholeRow<Epi>::COLS, V = ROW > 0 ? WIDEST : end_share(BM * BN, THREADS, WIDEST);
    using Ends = Tail<T, Out, ACC, Epi, V>;
    static constexpr bool SPLITS = SPLIT != 1;
    static constexpr int PITCH = BN + 8, STAGING = GROUPS * BM * PITCH * 4;
    static constexpr i64 WORK = SPLITS ? (i64)SPLIT * M * N * 4 : 0;
    static constexpr int PER_ROW = BN / V, ITEMS = ceil_div(BM * PER_ROW, THREADS);
    // With few elements for each thread, the operands of the epilogue are loaded before the product, which hides one
    // memory latency.
    static constexpr bool EARLY = !SPLITS && ITEMS <= 2;
    static_assert(BN % 4 == 0, "rows of a tile are moved in groups of four");
    // All lanes of a warp take part in the sums over a row, so that a tile has no rows beyond the last.
    static_assert(ROW == 0 || (ROW == BN && !SPLITS && 32 % PER_ROW == 0 && BM * PER_ROW % 32 == 0),
        "a row is neighbouring lanes of one warp");
    static_assert(ROW == 0 || !is_fixed(M) || !is_fixed(N) || (N == ROW && M % BM == 0), "tiles hold whole rows");

    static constexpr int blocks_of(i64 m, i64 n, i64 split, int phase) {
        return phase == 0 ? ceil_div(m, BM) * ceil_div(n, BN) * (int)split : ceil_div(m * n / WIDEST, THREADS);
    }
    static constexpr int blocks(int phase) { return blocks_of(M, N, SPLIT, phase); }
    DEV int blocks_for(const E e, int phase) {
        if constexpr (E::FIXED) return blocks(phase);
        if (phase == 0) return ceil_div(e.m, BM) * ceil_div(e.n, BN) * (int)e.split;
        return ceil_div((i64)e.m * e.n / WIDEST, THREADS);
    }

    // Neighbouring blocks go down eight rows of tiles before the next column, so that concurrent blocks share both
    // factors in L2.
    DEV Place place(const E e, int block) {
        if constexpr (!E::FIXED) return place_of_any_size(e, block);
        const int down = ceil_div(e.m, BM), across = ceil_div(e.n, BN), high = min_i(8, down);
        const int split = block / (down * across), tile = block % (down * across);
        const int first = tile / (high * across) * high, rows = min(down - first, high), rest = tile % (high * across);
        return Place{(first + rest % rows) * BM, rest / rows * BN, split};
    }

    // The same with as few divisions as possible, because each takes some twenty instructions.
    DEV Place place_of_any_size(const E e, int block) {
        const int down = ceil_div(e.m, BM), across = ceil_div(e.n, BN);
        int split = 0, first = 0, tile = block;
        if constexpr (SPLITS) {
            split = divide(block, down * across);
            tile -= split * (down * across);
        }
        if (down > 8) {
            first = divide(tile, 8 * across) * 8;
            tile -= first * across;
        }
        const int rows = min(down - first, 8), col = divide(tile, rows);
        return Place{(first + tile - col * rows) * BM, col * BN, split};
    }

    // Whether the thread has an i-th group of elements in this tile, and where.
    DEV bool item(const E e, const Place& p, int i, int& row, int& col) {
        const int index = threadIdx.x + i * THREADS;
        row = index / PER_ROW;
        col = index % PER_ROW * V;
        return row < BM && p.row + row < e.m && p.col + col < e.n;
    }

    struct Held {
        Ends ends[EARLY ? ITEMS : 1];
    };

    DEV void fetch(const Args& a, const E e, const Place& p, Held& held) {
        if constexpr (EARLY) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                int row, col;
                if (item(e, p, i, row, col)) held.ends[i].fetch(a, (int)e.n, p.row + row, p.col + col);
            }
        }
    }

    // Sums the accumulators of the groups and stores the tile; all accumulators must be visible to the block.
    DEV void finish(const Args& a, const E e, const Place& p, const float* staged, const Held& held) {
        const int n = (int)e.n;
        UpdateSum metric = {0u, 0.0f, 0.0f};
#pragma unroll(ITEMS <= 4 ? ITEMS : 2)
        for (int i = 0; i < ITEMS; ++i) {
            int row, col;
            if (!item(e, p, i, row, col)) continue;
            Vec<float, V> sum = load<float, V>(staged + row * PITCH + col);
#pragma unroll
            for (int g = 1; g < GROUPS; ++g) {
                const Vec<float, V> part = load<float, V>(staged + (g * BM + row) * PITCH + col);
#pragma unroll
                for (int v = 0; v < V; ++v) sum.v[v] += part.v[v];
            }
            if constexpr (SPLITS) {
                store<float, V>(
                    a.at<float>(slots::product::WORK) + ((i64)p.split * e.m + p.row + row) * n + p.col + col, sum);
            } else if constexpr (EARLY) {
                held.ends[i].finish(a, n, p.row + row, p.col + col, sum, metric);
            } else {
                Ends ends;
                ends.fetch(a, n, p.row + row, p.col + col);
                ends.finish(a, n, p.row + row, p.col + col, sum, metric);
            }
        }
        Ending<Epi>::template close<BM, BN, THREADS>(a, e, p.row, p.col, metric);
    }

    // Phase 1: a thread sums WIDEST elements over the splits, in rising order.
    DEV void combine(const Args& a, const E e, int block) {
        using Index = typename Choose<(is_fixed(M) && is_fixed(N) && M * N < (1ll << 30)), int, i64>::Type;
        const Index m = (Index)e.m, n = (Index)e.n, at = ((Index)block * THREADS + threadIdx.x) * WIDEST;
        const int split = (int)e.split;
        if (at >= m * n) return;
        const Index row = at / n;
        const int col = (int)(at % n);
        Tail<T, Out, ACC, Epi, WIDEST> ends;
        ends.fetch(a, (int)n, row, col);
        const float* work = a.at<float>(slots::product::WORK) + at;
        Vec<float, WIDEST> sum = load<float, WIDEST>(work);
#pragma unroll 8
        for (int s = 1; s < split; ++s) {
            const Vec<float, WIDEST> part = load<float, WIDEST>(work + (i64)s * m * n);
#pragma unroll
            for (int v = 0; v < WIDEST; ++v) sum.v[v] += part.v[v];
        }
        UpdateSum none;
        ends.finish(a, (int)n, row, col, sum, none);
    }
};

// ---------------------------------------- copies into shared memory

// The slab of one factor that one step of one group needs. A factor whose rows run along k (ALONG_K; [LEN, K] in
// memory) is stored as [TILE][BK] in shared memory, any other ([K, LEN] in memory) as [BK][TILE]; PAD elements between
// rows avoid bank conflicts. Elements outside the factor are zero.
template <class T, bool ALONG_K, int TILE, int BK, i64 LEN, int PAD, bool K_EXACT, int WIDTH> struct Slab {
    static constexpr int ROWS = ALONG_K ? TILE : BK, COLS = ALONG_K ? BK : TILE, PITCH = COLS + PAD;
    static constexpr int BYTES = ROWS * PITCH * (int)sizeof(T);
    static constexpr bool LEN_EXACT = is_fixed(LEN) && LEN % TILE == 0;
    static constexpr bool ROWS_EXACT = ALONG_K ? LEN_EXACT : K_EXACT, COLS_EXACT = ALONG_K ? K_EXACT : LEN_EXACT;
    static constexpr int V = min_i(WIDTH, COLS), PER_ROW = COLS / V, CHUNKS = ROWS * PER_ROW;
    static_assert(PITCH * sizeof(T) % 16 == 0 && COLS % V == 0, "rows in shared memory start at multiples of 16 bytes");

    // Starts to copy the slab at `at` (first row or column of the tile) and `k`, from a factor with the given rows and
    // columns. THREADS threads take part; this is number `thread`.
    template <int THREADS> DEV void fill(T* to, const T* from, int rows, int cols, int at, int k, int thread) {
        const int row0 = ALONG_K ? at : k, col0 = ALONG_K ? k : at;
        constexpr int EACH = ceil_div(CHUNKS, THREADS);
        if constexpr (V * sizeof(T) == 2) {
            // Plain loads, eight in flight: asynchronous copies move at least four bytes.
            constexpr int BATCH = min_i(8, EACH);
#pragma unroll 1
            for (int first = 0; first < EACH; first += BATCH) {
                T held[BATCH];
#pragma unroll
                for (int j = 0; j < BATCH; ++j) {
                    int row, col;
                    held[j] = chunk<THREADS>(thread, first + j, row, col) && inside(rows, cols, row0 + row, col0 + col)
                        ? from[offset(cols, row0 + row, col0 + col)]
                        : T{};
                }
#pragma unroll
                for (int j = 0; j < BATCH; ++j) {
                    int row, col;
                    if (chunk<THREADS>(thread, first + j, row, col)) to[row * PITCH + col] = held[j];
                }
            }
        } else {
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                int row, col;
                if (!chunk<THREADS>(thread, j, row, col)) continue;
                const bool valid = inside(rows, cols, row0 + row, col0 + col);
                copy_async<V * (int)sizeof(T)>(
                    to + row * PITCH + col, valid ? from + offset(cols, row0 + row, col0 + col) : from, valid);
            }
        }
    }

    // The copies of one thread to the slabs that follow each other along k, every STEP elements, from a factor whose
    // sizes are not compiled in. Its addresses are computed once, before the wait for the preceding launch; slabs are
    // filled in rising order.
    template <int THREADS, int STEP> struct Cursor {
        static constexpr int EACH = ceil_div(CHUNKS, THREADS), APART = THREADS / PER_ROW;
        // Whether it can take the place of `fill`: rounds of all threads cover whole rows, and chunks are copied
        // asynchronously.
        static constexpr bool USABLE = THREADS % PER_ROW == 0 && V * (int)sizeof(T) > 2;
        // The first chunk in the next slab, and the elements of the factor to the thread's next chunk and to the next
        // slab.
        const T* from;
        i64 apart, stride;
        // Its position in a slab, along k and across, and the ends of both.
        int place, along, end, across, far;

        __device__ __forceinline__ Cursor(const T* factor, int rows, int cols, int at, int k, int thread) {
            const int row = thread / PER_ROW, col = thread % PER_ROW * V;
            place = row * PITCH + col;
            along = k + (ALONG_K ? col : row), across = at + (ALONG_K ? row : col);
            end = ALONG_K ? cols : rows, far = ALONG_K ? rows : cols;
            // Chunks in one column are all inside the factor, or none is.
            if (!ALONG_K && across >= far) end = 0;
            apart = (i64)APART * cols, stride = ALONG_K ? (i64)STEP : (i64)STEP * cols;
            from = factor + offset(cols, ALONG_K ? across : along, ALONG_K ? along : across);
            asm volatile("" : "+l"(from), "+l"(stride), "+r"(place), "+r"(along), "+r"(end));
        }
        __device__ __forceinline__ void fill(T* to, int) {
#pragma unroll(min_i(EACH, 4))
            for (int j = 0; j < EACH; ++j) {
                if (CHUNKS % THREADS != 0 && place / PITCH + j * APART >= ROWS) break;
                const bool valid = ALONG_K ? along < end && across + j * APART < far : along + j * APART < end;
                copy_async<V * (int)sizeof(T)>(to + place + j * APART * PITCH, from + j * apart, valid);
            }
            from += stride, along += STEP;
        }
    };
    // The same with addresses that are computed for each slab.
    template <int THREADS, int STEP> struct Copies {
        const T* factor;
        int rows, cols, at, k, thread;

        __device__ __forceinline__ Copies(const T* factor, int rows, int cols, int at, int k, int thread)
            : factor(factor), rows(rows), cols(cols), at(at), k(k), thread(thread) {}
        __device__ __forceinline__ void fill(T* to, int step) const {
            Slab::fill<THREADS>(to, factor, rows, cols, at, k + step * STEP, thread);
        }
    };
    // The better ones for a member that is compiled for its sizes, or is not.
    template <bool FIXED, int THREADS, int STEP>
    using Filler = typename Choose<!FIXED && Cursor<THREADS, STEP>::USABLE, Cursor<THREADS, STEP>,
        Copies<THREADS, STEP>>::Type;

  private:
    // The thread's j-th chunk. If a round of all threads covers whole rows, the column is constant, which saves
    // arithmetic.
    template <int THREADS> DEV bool chunk(int thread, int j, int& row, int& col) {
        if constexpr (THREADS % PER_ROW == 0) {
            row = thread / PER_ROW + j * (THREADS / PER_ROW);
            col = thread % PER_ROW * V;
        } else {
            const int index = thread + j * THREADS;
            row = index / PER_ROW;
            col = index % PER_ROW * V;
        }
        return CHUNKS % THREADS == 0 || row < ROWS;
    }
    DEV i64 offset(int cols, int row, int col) {
        if constexpr (is_fixed(LEN)) return (i64)row * cols + col;
        else return (i64)((u64)(u32)row * (u32)cols + (u32)col);
    }
    DEV bool inside(int rows, int cols, int row, int col) {
        return (ROWS_EXACT || row < rows) && (COLS_EXACT || col < cols);
    }
};

// The number of slabs of a ring.
template <i64 STEPS> struct Steps {
    __device__ __forceinline__ constexpr explicit Steps(int) {}
    __device__ __forceinline__ constexpr operator int() const { return (int)STEPS; }
};
template <> struct Steps<ANY> {
    int value;
    __device__ __forceinline__ explicit Steps(int steps) : value(steps) {}
    __device__ __forceinline__ operator int() const { return value; }
};

// The ring of STEPS slabs in at most STAGES buffers: all slabs at once if they fit, otherwise one buffer is filled
// while another is read. If the kernel is not compiled for STEPS, one buffer is always being filled, and steps beyond
// the last copy nothing.
template <i64 STEPS, int STAGES> struct Ring {
    static constexpr bool FIXED = is_fixed(STEPS), ALL = FIXED && STEPS <= STAGES;
    static constexpr int BUFFERS = ALL ? (int)STEPS : STAGES, AHEAD = ALL ? (int)STEPS : STAGES - 1;

    // Calls fill_a(step, buffer), fill_b(step, buffer) and compute(buffer) for every step, and fetch() once, the first
    // and the last as early as the launch's flags allow. WARP: the group is one warp, which needs no barrier of the
    // block.
    template <bool WARP, class Fetch, class FillA, class FillB, class Compute>
    DEV void turn(const Args& a, const Steps<STEPS> given, Fetch fetch, FillA fill_a, FillB fill_b, Compute compute) {
        const int steps = given;
        const u64 flags = launch_flags(a);
        const bool early_a = flags & EARLY_A, early_b = flags & EARLY_B, early_ends = flags & EARLY_ENDS;
        if (early_ends) fetch();
        if (early_a || early_b) {
#pragma unroll 1
            for (int step = 0; step < AHEAD; ++step) {
                if constexpr (!FIXED) {
                    if (step >= steps) break;
                }
                if (early_a) fill_a(step, step);
                if (early_b) fill_b(step, step);
            }
        }
        begin(a);
        if (!early_ends) fetch();
#pragma unroll 1
        for (int step = 0; step < AHEAD; ++step) {
            if constexpr (!FIXED) {
                if (step >= steps) break;
            }
            if (!early_a) fill_a(step, step);
            if (!early_b) fill_b(step, step);
            copy_commit();
        }
        int full = 0, empty = AHEAD % BUFFERS;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            // If all steps are in flight, there may be fewer pending groups.
            if (!FIXED && steps < AHEAD) copy_wait<0>();
            else copy_wait<AHEAD - 1>();
            // The copies of all threads for this step are complete, and no thread still reads the buffer that is filled
            // next.
            if constexpr (WARP) __syncwarp();
            else __syncthreads();
            if constexpr (!ALL) {
                if (step + AHEAD < steps) {
                    fill_a(step + AHEAD, empty);
                    fill_b(step + AHEAD, empty);
                }
                empty = empty + 1 == BUFFERS ? 0 : empty + 1;
            }
            // An empty group keeps the number of pending groups correct at the end.
            copy_commit();
            compute(full);
            full = full + 1 == BUFFERS ? 0 : full + 1;
        }
        // The buffers are reused for the accumulators.
        __syncthreads();
    }
};

}  // namespace gemm

// ---------------------------------------- FMA arithmetic

// float products with fused multiply-adds; each accumulator is summed over k in rising order within its group.
//
// A thread computes TM x TN elements (1, 2, 4 or 8 each) of a BM x BN tile; KG groups of (BM / TM)(BN / TN) threads
// divide k; each processes BK of every KG BK. THREADS = KG (BM / TM)(BN / TN). Shared memory: up to 96 KB. Overwrites
// c, or adds to it (ACC). 16-byte accesses where row lengths are multiples of four. Moves M K ceil(N / BN) + K N ceil(M
// / BM) floats from L2.
template <i64 M, i64 N, i64 K, int TRANS, bool ACC, class Epi, int BM, int BN, int BK, int TM, int TN, int KG,
    i64 SPLIT, int VA = vec_width<float>(TRANS == GEMM_TN ? M : K), int VB = vec_width<float>(TRANS == GEMM_NT ? K : N),
    int VC = gemm::end_width(N)>
struct GemmSimt {
    static constexpr int PHASES = SPLIT == 1 ? 1 : 2;
    static constexpr bool BEGINS = true;
    static constexpr int ACROSS = BN / TN, GROUP = (BM / TM) * ACROSS, THREADS = KG * GROUP;
    // A warp covers LY x LX threads of its tile: eight neighbours read 128 bytes of b, and rows of a are read by
    // several threads at once.
    static constexpr int LX = min_i(8, ACROSS), LY = 32 / LX;
    static_assert(
        GROUP % 32 == 0 && ACROSS % LX == 0 && (BM / TM) % LY == 0 && BK % 4 == 0, "a group is made of whole warps");
    static constexpr bool FIXED = is_fixed(K) && is_fixed(SPLIT);
    static constexpr i64 STEPS = FIXED ? ceil_div(ceil_div(K, BK * KG), SPLIT) : ANY;
    static constexpr bool K_EXACT = FIXED && STEPS * SPLIT * BK * KG == K, A_ALONG = TRANS != GEMM_TN,
                          B_ALONG = TRANS == GEMM_NT;
    using SlabA = gemm::Slab<float, A_ALONG, BM, BK, M, A_ALONG ? 4 : 0, K_EXACT, VA>;
    using SlabB = gemm::Slab<float, B_ALONG, BN, BK, N, B_ALONG ? 4 : 0, K_EXACT, VB>;
    using Tiles = gemm::Tiles<float, M, N, K, TRANS, ACC, Epi, BM, BN, KG, SPLIT, THREADS, VC>;
    static constexpr int STEP_BYTES = KG * (SlabA::BYTES + SlabB::BYTES);
    // Slabs of a block along k.
    DEV int steps_for(const typename Tiles::E e) {
        if constexpr (FIXED) return (int)STEPS;
        const int slabs = ceil_div(e.k, BK * KG), split = (int)e.split;
        return SPLIT == 1 ? slabs : divide(slabs + split - 1, split);
    }
    static constexpr int STAGES = max_i(2, min_i(GROUP == 32 ? 8 : 4, gemm::RING_LIMIT / STEP_BYTES));
    using Ring = gemm::Ring<STEPS, STAGES>;
    static constexpr int SMEM = max_i(Ring::BUFFERS * STEP_BYTES, Tiles::STAGING);
    static constexpr long long WORK = Tiles::WORK;
    static_assert(SMEM <= 99 * 1024, "a block's shared memory");

    static constexpr int blocks(int phase) { return Tiles::blocks(phase); }
    DEV int blocks_for(const Args& a, int phase) { return Tiles::blocks_for(typename Tiles::E(a), phase); }
    static constexpr int smem(int phase) { return phase == 0 ? SMEM : 0; }

    // The position in the tile of a thread's i-th element in one dimension. Along k in memory, neighbouring threads
    // take neighbouring rows; otherwise a thread takes groups of up to four neighbours, which it reads at once.
    template <bool ALONG_K, int EACH, int COUNT> DEV int position(int thread, int i) {
        constexpr int W = ALONG_K ? 1 : min_i(EACH, 4);
        return thread * W + i / W * (W * COUNT) + i % W;
    }

    // Reads a thread's elements of one factor for four neighbouring k.
    template <class Slab, bool ALONG_K, int EACH, int COUNT>
    DEV void fragment(float (&out)[4][EACH], const float* slab, int thread, int k) {
        if constexpr (ALONG_K) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const Vec<float, 4> v = load<float, 4>(slab + position<true, EACH, COUNT>(thread, i) * Slab::PITCH + k);
#pragma unroll
                for (int q = 0; q < 4; ++q) out[q][i] = v.v[q];
            }
        } else {
            constexpr int W = min_i(EACH, 4);
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
                for (int i = 0; i < EACH; i += W) {
                    const Vec<float, W> v =
                        load<float, W>(slab + (k + q) * Slab::PITCH + position<false, EACH, COUNT>(thread, i));
#pragma unroll
                    for (int w = 0; w < W; ++w) out[q][i + w] = v.v[w];
                }
        }
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 1) {
            begin(a);
            Tiles::combine(a, typename Tiles::E(a), block);
        } else {
            const typename Tiles::E extents(a);
            const int m = (int)extents.m, n = (int)extents.n, depth = (int)extents.k,
                      steps = steps_for(extents);
            const gemm::Place place = Tiles::place(extents, block);
            typename Tiles::Held held;
            const int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
            const int tx = warp % (ACROSS / LX) * LX + lane % LX, ty = warp / (ACROSS / LX) * LY + lane / LX;
            char* const mine = smem + group * (SlabA::BYTES + SlabB::BYTES);
            const int k0 = place.split * steps * (KG * BK) + group * BK;
            float acc[TM][TN];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = 0.0f;

            typename SlabA::template Filler<FIXED, GROUP, KG * BK> of_a(a.at<float>(gemm::Ending<Epi>::A),
                A_ALONG ? m : depth, A_ALONG ? depth : m, place.row, k0, thread);
            typename SlabB::template Filler<FIXED, GROUP, KG * BK> of_b(a.at<float>(gemm::Ending<Epi>::B),
                B_ALONG ? n : depth, B_ALONG ? depth : n, place.col, k0, thread);
            const auto fill_a = [&](int step, int buffer) { of_a.fill((float*)(mine + buffer * STEP_BYTES), step); };
            const auto fill_b = [&](int step, int buffer) {
                of_b.fill((float*)(mine + buffer * STEP_BYTES + SlabA::BYTES), step);
            };
            const auto compute = [&](int buffer) {
                const float* const sa = (const float*)(mine + buffer * STEP_BYTES);
                const float* const sb = (const float*)(mine + buffer * STEP_BYTES + SlabA::BYTES);
#pragma unroll(TM * TN >= 64 ? 2 : 4)
                for (int k = 0; k < BK; k += 4) {
                    float fa[4][TM], fb[4][TN];
                    fragment<SlabA, A_ALONG, TM, BM / TM>(fa, sa, ty, k);
                    fragment<SlabB, B_ALONG, TN, BN / TN>(fb, sb, tx, k);
#pragma unroll
                    for (int q = 0; q < 4; ++q)
#pragma unroll
                        for (int i = 0; i < TM; ++i)
#pragma unroll
                            for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(fa[q][i], fb[q][j], acc[i][j]);
                }
            };
            const auto fetch = [&] { Tiles::fetch(a, typename Tiles::E(a), place, held); };
            Ring::template turn<GROUP == 32>(a, gemm::Steps<STEPS>(steps), fetch, fill_a, fill_b, compute);

            float* const staged = (float*)smem;
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                float* const row = staged + (group * BM + position<A_ALONG, TM, BM / TM>(ty, i)) * Tiles::PITCH;
                constexpr int W = B_ALONG ? 1 : min_i(TN, 4);
#pragma unroll
                for (int j = 0; j < TN; j += W) {
                    Vec<float, W> v;
#pragma unroll
                    for (int w = 0; w < W; ++w) v.v[w] = acc[i][j + w];
                    store<float, W>(row + position<B_ALONG, TN, BN / TN>(tx, j), v);
                }
            }
            __syncthreads();
            Tiles::finish(a, extents, place, staged, held);
        }
    }
};

// ---------------------------------------- tensor cores

// Products on the tensor cores: bf16 and f16 as they are, float rounded to TF32 as fragments are read; float
// accumulators.
//
// A BM x BN tile is shared by WM x WN warps, each with (BM / WM) x (BN / WN) elements (multiples of 16), and by WK such
// groups, each of which processes BK of every WK BK of k. THREADS = 32 WM WN WK. BK is a multiple of 16 (8 for float).
// Shared memory: up to 96 KB. Overwrites c, or adds to it (ACC). 16-byte accesses where row lengths are multiples of 16
// bytes. Moves M K ceil(N / BN) + K N ceil(M / BM) elements from L2.
template <class T, i64 M, i64 N, i64 K, int TRANS, bool ACC, class Epi, int BM, int BN, int BK, int WM, int WN, int WK,
    i64 SPLIT, int VA = vec_width<T>(TRANS == GEMM_TN ? M : K), int VB = vec_width<T>(TRANS == GEMM_NT ? K : N),
    int VC = gemm::end_width(N)>
struct GemmMma {
    static constexpr int PHASES = SPLIT == 1 ? 1 : 2;
    static constexpr bool BEGINS = true;
    static constexpr int GROUP = WM * WN * 32, THREADS = WK * GROUP;
    static constexpr bool FLOAT = sizeof(T) == 4;
    // Elements in 16 bytes, the depth of one instruction, and the instructions down and across a warp's tile.
    static constexpr int E = 16 / (int)sizeof(T), KS = 2 * E, DOWN = BM / WM / 16, ACROSS = BN / WN / 8;
    static_assert(
        BM % (16 * WM) == 0 && BN % (16 * WN) == 0 && BK % KS == 0, "a warp's tile is made of whole instructions");
    static constexpr bool FIXED = is_fixed(K) && is_fixed(SPLIT);
    static constexpr i64 STEPS = FIXED ? ceil_div(ceil_div(K, BK * WK), SPLIT) : ANY;
    static constexpr bool K_EXACT = FIXED && STEPS * SPLIT * BK * WK == K, A_ALONG = TRANS != GEMM_TN,
                          B_ALONG = TRANS == GEMM_NT;
    // Rows that ldmatrix reads need an odd number of 16-byte units; floats that lie across k are read one by one, four
    // rows of eight at a time.
    template <bool ALONG_K> static constexpr int PAD = ALONG_K || !FLOAT ? E : 8;
    using SlabA = gemm::Slab<T, A_ALONG, BM, BK, M, PAD<A_ALONG>, K_EXACT, VA>;
    using SlabB = gemm::Slab<T, B_ALONG, BN, BK, N, PAD<B_ALONG>, K_EXACT, VB>;
    using Tiles = gemm::Tiles<T, M, N, K, TRANS, ACC, Epi, BM, BN, WK, SPLIT, THREADS, VC>;
    static constexpr int STEP_BYTES = WK * (SlabA::BYTES + SlabB::BYTES);
    // Slabs of a block along k.
    DEV int steps_for(const typename Tiles::E e) {
        if constexpr (FIXED) return (int)STEPS;
        const int slabs = ceil_div(e.k, BK * WK), split = (int)e.split;
        return SPLIT == 1 ? slabs : divide(slabs + split - 1, split);
    }
    static constexpr int STAGES = max_i(2, min_i(8, gemm::RING_LIMIT / STEP_BYTES));
    using Ring = gemm::Ring<STEPS, STAGES>;
    static constexpr int SMEM = max_i(Ring::BUFFERS * STEP_BYTES, Tiles::STAGING);
    static constexpr long long WORK = Tiles::WORK;
    static_assert(SMEM <= 99 * 1024, "a block's shared memory");

    static constexpr int blocks(int phase) { return Tiles::blocks(phase); }
    DEV int blocks_for(const Args& a, int phase) { return Tiles::blocks_for(typename Tiles::E(a), phase); }
    static constexpr int smem(int phase) { return phase == 0 ? SMEM : 0; }

    // The 16 x KS fragment of a at row `m` and `k` of the slab. ldmatrix gives lane l the 32 bits at row l / 4, word l
    // % 4 of each 8 x 16-byte matrix: two 16-bit elements or one float, which is the layout that the instruction needs
    // in both cases.
    DEV void fragment_a(u32 (&out)[4], const T* slab, int m, int k, int lane) {
        if constexpr (A_ALONG) {
            load_matrix_x4(out, slab + (m + lane % 16) * SlabA::PITCH + k + lane / 16 * E);
        } else if constexpr (!FLOAT) {
            load_matrix_x4_trans(out, slab + (k + lane / 16 * 8 + lane % 8) * SlabA::PITCH + m + lane / 8 % 2 * 8);
        } else {
            const float* const at = (const float*)slab + (k + lane % 4) * SlabA::PITCH + m + lane / 4;
#pragma unroll
            for (int i = 0; i < 4; ++i) out[i] = __float_as_uint(at[i / 2 * 4 * SlabA::PITCH + i % 2 * 8]);
        }
        round(out);
    }

    // The KS x 16 fragment of b at `k` and column `n` of the slab: words 0, 1 for the first eight columns, 2, 3 for the
    // others.
    DEV void fragment_b(u32 (&out)[4], const T* slab, int n, int k, int lane) {
        if constexpr (B_ALONG) {
            load_matrix_x4(out, slab + (n + lane / 16 * 8 + lane % 8) * SlabB::PITCH + k + lane / 8 % 2 * E);
        } else if constexpr (!FLOAT) {
            load_matrix_x4_trans(out, slab + (k + lane % 16) * SlabB::PITCH + n + lane / 16 * 8);
        } else {
            const float* const at = (const float*)slab + (k + lane % 4) * SlabB::PITCH + n + lane / 4;
#pragma unroll
            for (int i = 0; i < 4; ++i) out[i] = __float_as_uint(at[i % 2 * 4 * SlabB::PITCH + i / 2 * 8]);
        }
        round(out);
    }

    DEV void round(u32 (&words)[4]) {
        if constexpr (FLOAT) {
#pragma unroll
            for (int i = 0; i < 4; ++i) words[i] = to_tf32(__uint_as_float(words[i]));
        }
    }

    DEV void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        const u32 b[2] = {b0, b1};
        if constexpr (FLOAT) mma_tf32(c, a, b);
        else if constexpr (gemm::IsBf16<T>::YES) mma_bf16(c, a, b);
        else mma_f16(c, a, b);
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 1) {
            begin(a);
            Tiles::combine(a, typename Tiles::E(a), block);
        } else {
            const typename Tiles::E extents(a);
            const int m = (int)extents.m, n = (int)extents.n, depth = (int)extents.k,
                      steps = steps_for(extents);
            const gemm::Place place = Tiles::place(extents, block);
            typename Tiles::Held held;
            const int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
            const int m0 = warp / WN * (BM / WM), n0 = warp % WN * (BN / WN);
            char* const mine = smem + group * (SlabA::BYTES + SlabB::BYTES);
            const int k0 = place.split * steps * (WK * BK) + group * BK;
            float acc[DOWN][ACROSS][4];
            clear_sums(acc);

            typename SlabA::template Filler<FIXED, GROUP, WK * BK> of_a(a.at<T>(gemm::Ending<Epi>::A),
                A_ALONG ? m : depth, A_ALONG ? depth : m, place.row, k0, thread);
            typename SlabB::template Filler<FIXED, GROUP, WK * BK> of_b(a.at<T>(gemm::Ending<Epi>::B),
                B_ALONG ? n : depth, B_ALONG ? depth : n, place.col, k0, thread);
            const auto fill_a = [&](int step, int buffer) { of_a.fill((T*)(mine + buffer * STEP_BYTES), step); };
            const auto fill_b = [&](int step, int buffer) {
                of_b.fill((T*)(mine + buffer * STEP_BYTES + SlabA::BYTES), step);
            };
            const auto compute = [&](int buffer) {
                const T* const sa = (const T*)(mine + buffer * STEP_BYTES);
                const T* const sb = (const T*)(mine + buffer * STEP_BYTES + SlabA::BYTES);
#pragma unroll
                for (int k = 0; k < BK; k += KS) {
                    u32 fa[DOWN][4], fb[ACROSS / 2][4];
#pragma unroll
                    for (int i = 0; i < DOWN; ++i) fragment_a(fa[i], sa, m0 + i * 16, k, lane);
#pragma unroll
                    for (int j = 0; j < ACROSS / 2; ++j) fragment_b(fb[j], sb, n0 + j * 16, k, lane);
#pragma unroll
                    for (int i = 0; i < DOWN; ++i)
#pragma unroll
                        for (int j = 0; j < ACROSS; ++j)
                            multiply(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
                }
            };
            const auto fetch = [&] { Tiles::fetch(a, typename Tiles::E(a), place, held); };
            Ring::template turn<GROUP == 32>(a, gemm::Steps<STEPS>(steps), fetch, fill_a, fill_b, compute);

            // Lane l holds columns 2 (l % 4) and the next of rows l / 4 and 8 below.
            float* const staged = (float*)smem;
            float* const at = staged + (group * BM + m0 + lane / 4) * Tiles::PITCH + n0 + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                    for (int h = 0; h < 2; ++h)
                        store<float, 2>(at + (i * 16 + h * 8) * Tiles::PITCH + j * 8,
                            Vec<float, 2>{{acc[i][j][2 * h], acc[i][j][2 * h + 1]}});
            __syncthreads();
            Tiles::finish(a, extents, place, staged, held);
        }
    }
};

// ---------------------------------------- small products with few memory latencies

namespace gemm {

// Reads COUNT words at once, or zeros if not `inside`; the loads keep their order.
template <int COUNT> DEV void read_words(u32* to, const void* from, bool inside) {
    if constexpr (COUNT == 4)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; "
                     "@p ld.global.v4.b32 {%0,%1,%2,%3}, [%4];}"
                     : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3]) : "l"(from), "r"((int)inside));
    else if constexpr (COUNT == 2)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
                     "@p ld.global.v2.b32 {%0,%1}, [%2];}"
                     : "=&r"(to[0]), "=&r"(to[1]) : "l"(from), "r"((int)inside));
    else
        asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; @p ld.global.b32 %0, [%1];}"
            : "=&r"(to[0]) : "l"(from), "r"((int)inside));
}

// The part of one factor that a warp needs for a chunk of k: 8 Q rows or columns, of which lane 4 g + t holds Q g to Q
// g + Q - 1, each with the t-th quarter of the chunk's k as four words of 32 bits. A matrix instruction may sum over k
// in any order, and its rows and columns may be assigned to any of the tile. So the elements of a lane are neighbours
// in memory for both layouts of the factor: sixteen bytes of a row along k (ALONG_K) or Q elements of a row across it.
//
// They are loaded directly into registers, or through the group's part of shared memory (VIA), which holds the data of
// its WAYS neighbouring warps. The time of a load is proportional to the cache lines that it reads: eight lanes that
// load into registers read two lines along k, but four across k. So loading through shared memory is faster across k.
template <class T, bool ALONG_K, int Q, int WAYS, int THREADS, int LEN, int K, bool WANT_VIA> struct Piece {
    static constexpr int E = 4 / (int)sizeof(T), CHUNK = 16 * E, RUN = ALONG_K ? 4 * E : Q, RUNS = ALONG_K ? Q : 4 * E;
    static constexpr int ROWS = ALONG_K ? LEN : K, COLS = ALONG_K ? K : LEN, V = min_i(vec_width<T>(COLS), RUN);
    static constexpr bool LEN_EXACT = LEN % (8 * Q * WAYS) == 0, ROWS_EXACT = ALONG_K ? LEN_EXACT : K % CHUNK == 0,
                          COLS_EXACT = ALONG_K ? K % CHUNK == 0 : LEN_EXACT;
    using Index = typename Choose<((i64)LEN * K < (1ll << 30)), int, i64>::Type;
    static constexpr bool VIA = WANT_VIA && COLS % (4 * E) == 0;
    // The chunk in shared memory: between rows there is a gap of 16 or 32 bytes, so that the reads of eight lanes are
    // spread over all banks. Rows across k are ordered by their number within a quarter first.
    static constexpr int HIGH = ALONG_K ? 8 * Q * WAYS : CHUNK, UNITS = ALONG_K ? 4 : 8 * Q * WAYS / (4 * E),
                         PITCH = UNITS * 16 + (ALONG_K && Q == 4 ? 16 : 32);
    static constexpr int BYTES = VIA ? HIGH * PITCH : 0, WORDS = VIA ? 0 : RUNS * (RUN / E);
    u32 raw[RUNS][RUN / E];

    // Starts to read the chunk at `k`, from the group's first row or column `tile`, of which the warp's is number
    // `mine`; elements outside the factor are zero.
    __device__ __forceinline__ void read(char* room, const T* from, int tile, int mine, int k, int lane, int thread) {
        if constexpr (VIA) {
            const int row0 = ALONG_K ? tile : k, col0 = ALONG_K ? k : tile;
#pragma unroll
            for (int i = 0; i < ceil_div(HIGH * UNITS, THREADS); ++i) {
                const int unit = thread + i * THREADS, r = unit / UNITS, c = unit % UNITS, row = row0 + r,
                          col = col0 + c * (4 * E);
                if (HIGH * UNITS % THREADS != 0 && r >= HIGH) break;
                const bool inside = (ROWS_EXACT || row < ROWS) && (COLS_EXACT || col < COLS);
                const int to = ALONG_K ? r : r % (4 * E) * 4 + r / (4 * E);
                copy_async<16>(room + to * PITCH + c * 16, inside ? from + ((Index)row * COLS + col) : from, inside);
            }
        } else {
            const int at = tile + mine, row = ALONG_K ? at + lane / 4 * Q : k + lane % 4 * (4 * E),
                      col = ALONG_K ? k + lane % 4 * (4 * E) : at + lane / 4 * Q;
            const T* const first = from + ((Index)row * COLS + col);
#pragma unroll
            for (int r = 0; r < RUNS; ++r) {
                const bool row_inside = ROWS_EXACT || row + r < ROWS;
                if constexpr (V >= E) {
#pragma unroll
                    for (int v = 0; v < RUN; v += V)
                        read_words<V / E>(
                            raw[r] + v / E, first + (Index)r * COLS + v, row_inside && (COLS_EXACT || col + v < COLS));
                } else {
#pragma unroll
                    for (int v = 0; v < RUN; v += 2) {
                        const u32 low =
                            row_inside && (COLS_EXACT || col + v < COLS) ? first[(Index)r * COLS + v].bits : 0;
                        const u32 high =
                            row_inside && (COLS_EXACT || col + v + 1 < COLS) ? first[(Index)r * COLS + v + 1].bits : 0;
                        raw[r][v / 2] = high << 16 | low;
                    }
                }
            }
        }
    }

    // Loads the lane's elements from shared memory, if they are stored there.
    __device__ __forceinline__ void fetch(const char* room, int mine, int lane) {
        if constexpr (VIA) {
            const int g = lane / 4, t = lane % 4;
#pragma unroll
            for (int r = 0; r < RUNS; ++r) {
                const char* const at = room +
                    (ALONG_K ? (mine + g * Q + r) * PITCH + t * 16
                             : (r * 4 + t) * PITCH + (mine + g * Q) * (int)sizeof(T));
                constexpr int W = min_i(RUN / E, 4);
#pragma unroll
                for (int w = 0; w < RUN / E; w += W) {
                    const Vec<u32, W> words = load<u32, W>((const u32*)at + w);
#pragma unroll
                    for (int i = 0; i < W; ++i) raw[r][w + i] = words.v[i];
                }
            }
        }
    }

    // The w-th word of the lane's q-th row or column, ready for the instruction.
    __device__ __forceinline__ u32 word(int q, int w) const {
        if constexpr (E == 1) return to_tf32(__uint_as_float(ALONG_K ? raw[q][w] : raw[w][q]));
        else if constexpr (ALONG_K) return raw[q][w];
        else return __byte_perm(raw[2 * w][q / 2], raw[2 * w + 1][q / 2], q % 2 ? 0x7632 : 0x5410);
    }
};

}  // namespace gemm

// Products that take only a few memory latencies, on the tensor cores, with as few instructions as possible between the
// loads.
//
// A warp holds the accumulators of 8 RQ x 8 CQ elements, WM x WN warps compute a tile, and WK such groups process every
// WK-th chunk of k (64 bytes of a row). The loads of the next chunks are in flight, of all chunks if they fit, so that
// the whole reduction often takes one memory latency. Groups never wait for each other before the end, where their
// accumulators are summed in a fixed order. Factors are loaded through shared memory if VIA has the bit of their
// direction (1 across k, 2 along k), otherwise directly into registers. RQ and CQ are 2, 4 or 8. THREADS = 32 WM WN WK.
// Any M, N, K; 16-byte accesses where rows allow. Overwrites c, or adds to it (ACC). Moves M K ceil(N / BN) + K N
// ceil(M / BM) elements from L2.
template <class T, int M, int N, int K, int TRANS, bool ACC, class Epi, int RQ, int CQ, int WM, int WN, int WK, int VIA>
struct GemmDirect {
    static constexpr bool ALONE = gemm::Ending<Epi>::ALONE;
    // A multiprocessor also has room for a block of the next launch, which loads its unchanged factor at the same time.
    static constexpr int PHASES = 1, THREADS = 32 * WM * WN * WK, MIN_BLOCKS = ALONE ? 1 : 2;
    static constexpr bool BEGINS = true;
    static constexpr int BM = 8 * RQ * WM, BN = 8 * CQ * WN;
    static constexpr bool A_ALONG = TRANS != GEMM_TN, B_ALONG = TRANS == GEMM_NT;
    static constexpr int GROUP = 32 * WM * WN;
    using PieceA = gemm::Piece<T, A_ALONG, RQ, WM, GROUP, M, K, (VIA & (A_ALONG ? 2 : 1)) != 0>;
    using PieceB = gemm::Piece<T, B_ALONG, CQ, WN, GROUP, N, K, (VIA & (B_ALONG ? 2 : 1)) != 0>;
    static constexpr int CHUNK = PieceA::CHUNK, CHUNKS = ceil_div(K, CHUNK), STEPS = ceil_div(CHUNKS, WK);
    // The number of chunks in flight, limited by registers and shared memory. If no chunk is in registers, the loop
    // over the chunks is not unrolled.
    static constexpr int SLOT = PieceA::BYTES + PieceB::BYTES, WORDS = PieceA::WORDS + PieceB::WORDS;
    static constexpr int FIT_REGISTERS = WORDS > 0 ? max_i(1, min_i(8, (192 - 2 * RQ * CQ) / max_i(1, WORDS))) : 8;
    static constexpr int FIT_SHARED = SLOT > 0 ? (ALONE ? 192 : 96) * 1024 / (WK * max_i(1, SLOT)) : 8;
    static constexpr int DEPTH = min_i(STEPS, min_i(FIT_REGISTERS, FIT_SHARED));
    using Out = typename gemm::Choose<TRANS == GEMM_TN, float, T>::Type;
    static constexpr int WIDEST = gemm::end_width(N);
    static constexpr int V = gemm::COSTLY<Epi> ? gemm::end_share(BM * BN, THREADS, WIDEST) : WIDEST;
    using Ends = gemm::Tail<T, Out, ACC, Epi, V>;
    static constexpr int DOWN = ceil_div(M, BM), ACROSS = ceil_div(N, BN), PER_ROW = BN / V,
                         ITEMS = ceil_div(BM * PER_ROW, THREADS);
    // Narrow rows need a gap so that the 16-byte stores of eight lanes use different banks; wider rows are permuted
    // instead.
    static constexpr int PITCH = BN == 16 ? (RQ == 2 ? 24 : 20) : BN;
    // The shared memory of a group: its chunks, then its accumulators.
    static constexpr int ROOM = max_i(DEPTH * SLOT, BM * PITCH * 4);
    static constexpr long long WORK = 0;
    static_assert(DEPTH > 0 && WK * ROOM <= (ALONE ? 200 : 99) * 1024, "a block's shared memory");
    static_assert(!ALONE || (WORDS == 0 && STEPS <= DEPTH), "everything is under way at once");

    static constexpr int blocks(int) { return DOWN * ACROSS; }
    // More than half of the shared memory, which keeps other blocks away.
    static constexpr int smem(int) { return ALONE ? max_i(WK * ROOM, 116 * 1024) : WK * ROOM; }

    // The location of the four floats at `row` and `piece` of a tile.
    DEV int staged_at(int row, int piece) {
        const int odd = row / RQ & 1;
        if constexpr (CQ == 4) piece ^= odd;
        if constexpr (CQ == 8) piece ^= (piece >> 3 & 1) + 2 * odd;
        return row * PITCH + piece * 4;
    }

    // A barrier of a group.
    DEV void meet(int group) {
        if constexpr (GROUP == 32) __syncwarp();
        else if constexpr (WK == 1) __syncthreads();
        else asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP) : "memory");
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const int row0 = block % DOWN * BM, col0 = block / DOWN * BN;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        const int group = warp / (WM * WN), thread = threadIdx.x % GROUP, m0 = warp / WN % WM * (8 * RQ),
                  n0 = warp % WN * (8 * CQ);
        char* const room = smem + group * ROOM;
        PieceA pa[DEPTH];
        PieceB pb[DEPTH];
        const auto some = [&](int step) { return CHUNKS % WK == 0 || step + 1 < STEPS || group + step * WK < CHUNKS; };
        const auto read_a = [&](int step, int slot, PieceA& to) {
            if (some(step))
                to.read(room + slot * SLOT, a.at<T>(gemm::Ending<Epi>::A), row0, m0, (group + step * WK) * CHUNK, lane,
                    thread);
        };
        const auto read_b = [&](int step, int slot, PieceB& to) {
            if (some(step))
                to.read(room + slot * SLOT + PieceA::BYTES, a.at<T>(gemm::Ending<Epi>::B), col0, n0,
                    (group + step * WK) * CHUNK, lane, thread);
        };
        const auto read = [&](int step, int slot, PieceA& to_a, PieceB& to_b) {
            read_a(step, slot, to_a);
            read_b(step, slot, to_b);
            if constexpr (SLOT > 0) copy_commit();
        };
        float acc[RQ / 2][CQ][4];
        clear_sums(acc);
        const auto multiply = [&](int step, int slot, PieceA& from_a, PieceB& from_b) {
            if (!some(step)) return;
            from_a.fetch(room + slot * SLOT, m0, lane);
            from_b.fetch(room + slot * SLOT + PieceA::BYTES, n0, lane);
#pragma unroll
            for (int s = 0; s < 4; s += 2) {
                u32 fa[RQ / 2][4], fb[CQ][2];
#pragma unroll
                for (int i = 0; i < 2 * RQ; ++i) fa[i / 4][i % 4] = from_a.word(i / 4 * 2 + i % 2, s + i % 4 / 2);
#pragma unroll
                for (int j = 0; j < 2 * CQ; ++j) fb[j / 2][j % 2] = from_b.word(j / 2, s + j % 2);
#pragma unroll
                for (int i = 0; i < RQ / 2; ++i)
#pragma unroll
                    for (int j = 0; j < CQ; ++j) {
                        if constexpr (sizeof(T) == 4) mma_tf32(acc[i][j], fa[i], fb[j]);
                        else mma_half<T>(acc[i][j], fa[i], fb[j]);
                    }
            }
        };
        const auto compute = [&](int step, int slot, PieceA& from_a, PieceB& from_b) {
            if constexpr (SLOT > 0) {
                copy_wait<DEPTH - 1>();
                meet(group);
            }
            multiply(step, slot, from_a, from_b);
        };
        // The operands of the epilogue are loaded after the first chunks.
        Ends ends[ITEMS];
        const auto item = [&](int i, int& row, int& col) {
            const int index = threadIdx.x + i * THREADS;
            row = index / PER_ROW;
            col = index % PER_ROW * V;
            return (BM * PER_ROW % THREADS == 0 || row < BM) && (M % BM == 0 || row0 + row < M) &&
                (N % BN == 0 || col0 + col < N);
        };
        const auto fetch_ends = [&] {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                int row, col;
                if (item(i, row, col)) ends[i].fetch(a, N, row0 + row, col0 + col);
            }
        };
        const u64 flags = launch_flags(a);
        const bool early_a = flags & EARLY_A, early_b = flags & EARLY_B, early_ends = flags & EARLY_ENDS;
        // No input was written by the preceding launch: only the stores have to wait.
        const bool ahead = ALONE && early_a && early_b && early_ends;
        if constexpr (WORDS == 0) {
            // The registers of a chunk are filled and used within one iteration.
            if (early_a || early_b) {
#pragma unroll 1
                for (int step = 0; step < DEPTH; ++step) {
                    if (early_a) read_a(step, step, pa[0]);
                    if (early_b) read_b(step, step, pb[0]);
                }
            }
            if (early_ends) fetch_ends();
            if (!ahead) begin(a);
#pragma unroll 1
            for (int step = 0; step < DEPTH; ++step) {
                if (!early_a) read_a(step, step, pa[0]);
                if (!early_b) read_b(step, step, pb[0]);
                copy_commit();
            }
            if (!early_ends) fetch_ends();
            if constexpr (ALONE) {
                // Two barriers instead of one for each chunk: between them, some warps multiply while others load.
                constexpr int HALF = STEPS / 2;
                copy_wait<STEPS - HALF>();
                meet(group);
#pragma unroll
                for (int step = 0; step < HALF; ++step) multiply(step, step, pa[0], pb[0]);
                copy_wait<0>();
                meet(group);
#pragma unroll
                for (int step = HALF; step < STEPS; ++step) multiply(step, step, pa[0], pb[0]);
                if (ahead) begin(a);
            } else {
                int slot = 0;
#pragma unroll 1
                for (int step = 0; step < STEPS; ++step) {
                    compute(step, slot, pa[0], pb[0]);
                    if constexpr (STEPS > DEPTH) {
                        meet(group);
                        if (step + DEPTH < STEPS) read(step + DEPTH, slot, pa[0], pb[0]);
                        else copy_commit();
                    } else {
                        copy_commit();
                    }
                    slot = slot + 1 == DEPTH ? 0 : slot + 1;
                }
            }
        } else {
#pragma unroll
            for (int step = 0; step < DEPTH; ++step) {
                if (early_a) read_a(step, step, pa[step]);
                if (early_b) read_b(step, step, pb[step]);
            }
            if (early_ends) fetch_ends();
            begin(a);
#pragma unroll
            for (int step = 0; step < DEPTH; ++step) {
                if (!early_a) read_a(step, step, pa[step]);
                if (!early_b) read_b(step, step, pb[step]);
                if constexpr (SLOT > 0) copy_commit();
            }
            if (!early_ends) fetch_ends();
#pragma unroll(STEPS <= 8 ? STEPS : 1)
            for (int first = 0; first < STEPS; first += DEPTH) {
#pragma unroll
                for (int d = 0; d < DEPTH; ++d) {
                    const int step = first + d;
                    if (STEPS % DEPTH != 0 && step >= STEPS) break;
                    compute(step, d, pa[d], pb[d]);
                    if (step + DEPTH < STEPS) {
                        if constexpr (SLOT > 0) meet(group);
                        read(step + DEPTH, d, pa[d], pb[d]);
                    } else if constexpr (SLOT > 0) {
                        copy_commit();
                    }
                }
            }
        }

        // The accumulators replace the chunks: a lane holds 2 CQ neighbouring elements of RQ neighbouring rows.
        if constexpr (SLOT > 0) meet(group);
#pragma unroll
        for (int q = 0; q < RQ; ++q)
#pragma unroll
            for (int p = 0; p < CQ / 2; ++p) {
                Vec<float, 4> v;
#pragma unroll
                for (int i = 0; i < 4; ++i) v.v[i] = acc[q / 2][(p * 4 + i) % CQ][q % 2 * 2 + (p * 4 + i) / CQ];
                store<float, 4>((float*)room + staged_at(m0 + g * RQ + q, n0 / 4 + t * (CQ / 2) + p), v);
            }
        __syncthreads();
        UpdateSum metric = {0u, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            int row, col;
            if (!item(i, row, col)) continue;
            const float* const at = (const float*)smem + staged_at(row, col / 4) + col % 4;
            Vec<float, V> part[WK];
#pragma unroll
            for (int k = 0; k < WK; ++k) part[k] = load<float, V>(at + k * (ROOM / 4));
#pragma unroll
            for (int k = 1; k < WK; ++k)
#pragma unroll
                for (int v = 0; v < V; ++v) part[0].v[v] += part[k].v[v];
            ends[i].finish(a, N, row0 + row, col0 + col, part[0], metric);
        }
        const gemm::Extents<M, N, K, 1> extents(a);
        gemm::Ending<Epi>::template close<BM, BN, THREADS>(a, extents, row0, col0, metric);
    }
};
