// Normalisations: batch normalisation over the rows of [rows, channels], and layer and root mean square normalisation
// over each row, forward and backward.
//
// Values near 1000 with a spread of 1 keep their precision: every statistic is computed from differences to one element
// of the data (the first row for batch normalisation, the first element of the row for layer normalisation), and
// squares are those of differences to a mean or to an element of the same thread, so that large numbers do not cancel.

namespace norms {

// ---------------------------------------- helpers

template <class T, int V> DEV Raw<T, V> fetch(const T* at) {
    Raw<T, V> raw;
    raw.get(at);
    return raw;
}
template <class T, int V> DEV void put(T* at, const float (&v)[V]) {
    Raw<T, V> raw;
    raw.narrow(v);
    raw.put(at);
}

// V floats of a slot, or a constant if the slot is unused.
template <int V> DEV void floats(const Args& a, int slot, int at, float otherwise, float (&out)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = otherwise;
    if (slot >= 0 && a.has(slot)) fetch<float, V>(a.at<float>(slot) + at).widen(out);
}

// The previous values of V channels of a gradient if ACCUMULATE, otherwise zeros. They are loaded early, so that the
// latency is hidden.
template <bool ACCUMULATE, int V> DEV void previous(const Args& a, int slot, int at, float (&out)[V]) {
    floats(a, ACCUMULATE ? slot : -1, at, 0.0f, out);
}
// Writes V channels of a gradient if the slot is used.
template <int V> DEV void put_gradient(const Args& a, int slot, int at, const float (&before)[V], const float* v) {
    float sum[V];
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] = before[i] + v[i];
    if (a.has(slot)) put<float, V>(a.at<float>(slot) + at, sum);
}

// Floats of scratch for `column_sum`.
__host__ __device__ constexpr int column_floats(int threads, int tx, int n) {
    const int groups = threads / max_i(tx, 32);
    return groups > 1 ? groups * tx * n : 0;
}

// A block is THREADS / TX rows of TX threads, TX a power of two. Every thread gets the sums of its N values over
// its column, added in a fixed order. All threads call it; `scratch` may be reused after the call.
template <int THREADS, int TX, int N> DEV void column_sum(float (&v)[N], float* scratch) {
#pragma unroll
    for (int mask = 16; mask >= TX; mask >>= 1) {
        if (THREADS >= 32) {
#pragma unroll
            for (int i = 0; i < N; ++i) v[i] += __shfl_xor_sync(0xffffffffu, v[i], mask);
        }
    }
    constexpr int SPAN = TX > 32 ? TX : 32, GROUPS = THREADS / SPAN, SUMS = TX * N;
    if constexpr (GROUPS > 1) {
        const int t = threadIdx.x, tx = t % TX, group = t / SPAN;
        if (t % SPAN < TX) {
#pragma unroll
            for (int i = 0; i < N; ++i) scratch[group * SUMS + i * TX + tx] = v[i];
        }
        __syncthreads();
#pragma unroll 1
        for (int s = t; s < SUMS; s += THREADS) {
            float sum = scratch[s];
#pragma unroll
            for (int g = 1; g < GROUPS; ++g) sum += scratch[g * SUMS + s];
            scratch[s] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = scratch[i * TX + tx];
        __syncthreads();
    }
}

// Sums of N values over the TPR threads that share a row: a power of two up to 32, or the whole block. All threads call
// it.
template <int THREADS, int TPR, int N> DEV void row_sum(float (&v)[N], float* scratch) {
    static_assert(TPR <= 32 || TPR == THREADS, "a row belongs to part of a warp or to a block");
#pragma unroll
    for (int mask = (TPR < 32 ? TPR : 32) / 2; mask > 0; mask >>= 1) {
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] += __shfl_xor_sync(0xffffffffu, v[i], mask);
    }
    if constexpr (TPR > 32) {
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (int i = 0; i < N; ++i) scratch[threadIdx.x / 32 * N + i] = v[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; ++i) {
            v[i] = scratch[i];
#pragma unroll
            for (int w = 1; w < TPR / 32; ++w) v[i] += scratch[w * N + i];
        }
        __syncthreads();
    }
}

// 1 / n.
DEV float reciprocal(int n) { return 1.0f / (float)n; }

// The number of items of a batch: no more than a thread has.
__host__ __device__ constexpr int batch(int most, int rows) { return max_i(1, min_i(most, rows)); }
// Loads U items with a stride of TY from `j` on; past the end the last item is loaded again, so that every load is
// unconditional.
template <int U, int TY, bool EVEN, class Item, class Get>
DEV void get_batch(Item (&items)[U], int j, int count, Get get) {
#pragma unroll
    for (int u = 0; u < U; ++u) items[u] = get(EVEN ? j + u * TY : min_i(j + u * TY, count - 1));
}
// Processes the items j, j + TY, ... below `count`; `now` holds the first U. The loads of a batch are in flight while
// the batch before it is processed. EVEN: all batches are full.
template <int U, int TY, bool EVEN, class Item, class Get, class Use>
DEV void walk(Item (&now)[U], int j, int count, Get get, Use use) {
#pragma unroll 1
    while (j < count) {
        Item next[U];
        const int after = j + U * TY;
        if (after < count) get_batch<U, TY, EVEN>(next, after, count, get);
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (EVEN || u == 0 || j + u * TY < count) use(j + u * TY, now[u]);
#pragma unroll
        for (int u = 0; u < U; ++u) now[u] = next[u];
        j = after;
    }
}

// How [ROWS, C] is divided among blocks: tiles of TX groups of V neighbouring channels by CHUNK rows, TY rows at a
// time. Neighbouring blocks work on neighbouring memory. Idle threads of the last tile read the last group and write
// nothing.
//
// ROWS, C and CHUNK are the numbers 0, 1 and CHUNK_AT.
template <i64 ROWS, i64 C, int V, int THREADS, int TX, i64 CHUNK, int CHUNK_AT = 2> struct Tiles {
    static constexpr bool FIXED = is_fixed(ROWS);
    static constexpr int TY = THREADS / TX, WIDE = TX * V;
    static_assert((!FIXED || C % V == 0) && THREADS % TX == 0 && WIDE <= THREADS,
        "a tile has a thread for each of its channels");
    static __host__ __device__ constexpr int across_of(i64 c) { return ceil_div(c / V, TX); }
    static constexpr int ACROSS = across_of(C), CHUNKS = ceil_div(ROWS, CHUNK);
    int rows, cols, height, across, chunks;
    int tile, chunk, tx, ty, channel, count;
    size_t first;  // The first element of this thread's channels in the chunk.
    bool valid;
    DEV int across_for(const Args& a) {
        if constexpr (FIXED) return ACROSS;
        return (int)(((u32)(int)Size<C, 1>(a) / V + TX - 1) / TX);
    }
    DEV int chunks_for(const Args& a) {
        if constexpr (FIXED) return CHUNKS;
        return ceil_div(Size<ROWS, 0>(a), (int)Size<CHUNK, CHUNK_AT>(a));
    }
    DEV Tiles of(const Args& a, int block) {
        Tiles t;
        t.rows = (int)Size<ROWS, 0>(a);
        t.cols = (int)Size<C, 1>(a);
        t.height = (int)Size<CHUNK, CHUNK_AT>(a);
        t.across = across_for(a);
        t.chunks = chunks_for(a);
        const int groups = t.cols / V;
        if constexpr (FIXED) {
            t.tile = block % t.across;
            t.chunk = block / t.across;
        } else {
            // Often there is one tile across, and a division takes longer than to find out.
            t.chunk = t.across == 1 ? block : divide(block, t.across);
            t.tile = block - t.chunk * t.across;
        }
        t.tx = threadIdx.x % TX;
        t.ty = threadIdx.x / TX;
        const int group = t.tile * TX + t.tx;
        t.valid = (FIXED && C / V % TX == 0) || group < groups;
        t.channel = min_i(group, groups - 1) * V;
        t.count = t.rows_of(t.chunk);
        t.first = (size_t)t.chunk * t.height * t.cols + t.channel;
        return t;
    }
    __device__ __forceinline__ int rows_of(int chunk) const {
        return FIXED && ROWS % CHUNK == 0 ? height : min_i(height, rows - chunk * height);
    }
    // Whether the compiler can prove that every chunk consists of full batches of U rows for each thread.
    template <int U> static __host__ __device__ constexpr bool even() {
        return FIXED && ROWS % CHUNK == 0 && CHUNK % (U * TY) == 0;
    }
};

// The first barrier of a cluster, in two halves: before any block sends something, all blocks must have started.
DEV void start_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEV void wait_for_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Stores two floats to the address `at` in the shared memory of a block of the cluster. They can be read there after
// `meet_cluster`.
DEV void send(float2* at, int block, float x, float y) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(block));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there), "f"(x), "f"(y) : "memory");
}
DEV void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A constant of the operation from the bits of its f64, or from number INDEX.
template <u64 BITS, int INDEX> DEV double real_number(const Args& a) {
    return __longlong_as_double(Number<(i64)BITS, INDEX>(a));
}

// The running statistics of V channels before and after a batch; MOMENTUM is number 4.
template <u64 MOMENTUM, int V> struct Statistics {
    using Slots = slots::batch_norm;
    float mean_before[V], var_before[V];
    // Loaded early, so that the latency is hidden.
    __device__ __forceinline__ void get(const Args& a, int channel) {
        floats(a, a.has(Slots::MEAN_PREV) ? Slots::MEAN_PREV : Slots::RUNNING_MEAN, channel, 0.0f, mean_before);
        floats(a, a.has(Slots::VAR_PREV) ? Slots::VAR_PREV : Slots::RUNNING_VAR, channel, 0.0f, var_before);
    }
    // Writes the statistics whose slots are used.
    __device__ __forceinline__ void put(
        const Args& a, int rows, int channel, const float (&mean)[V], const float (&var)[V],
        const float (&rstd)[V]) const {
        const double momentum = real_number<MOMENTUM, 4>(a);
        const float keep = (float)(1.0 - momentum), take = (float)momentum;
        const float unbiased = (float)rows / (float)(rows - 1);
        float next[V];
        if (a.has(Slots::MEAN)) norms::put<float, V>(a.at<float>(Slots::MEAN) + channel, mean);
        if (a.has(Slots::RSTD)) norms::put<float, V>(a.at<float>(Slots::RSTD) + channel, rstd);
#pragma unroll
        for (int i = 0; i < V; ++i) next[i] = fmaf(keep, mean_before[i], take * mean[i]);
        if (a.has(Slots::RUNNING_MEAN)) norms::put<float, V>(a.at<float>(Slots::RUNNING_MEAN) + channel, next);
#pragma unroll
        for (int i = 0; i < V; ++i) next[i] = fmaf(keep, var_before[i], take * (var[i] * unbiased));
        if (a.has(Slots::RUNNING_VAR)) norms::put<float, V>(a.at<float>(Slots::RUNNING_VAR) + channel, next);
    }
};

}  // namespace norms

// ---------------------------------------- batch normalisation, training

// Tensors of any size, in two phases: each chunk writes two floats for each channel, which every block then combines.
// SUMS is the number of values of a channel that are added at once; the size of the scratch memory depends on it.
template <i64 ROWS, i64 C, int V, int TX, i64 CHUNK, int THREADS_, int SUMS> struct BatchNormPhases {
    static constexpr int PHASES = 2, THREADS = THREADS_;
    using Tile = norms::Tiles<ROWS, C, V, THREADS, TX, CHUNK>;
    static constexpr int SCRATCH =
        max_i(norms::column_floats(THREADS, TX, SUMS * V), norms::column_floats(THREADS, Tile::WIDE, SUMS));
    static constexpr i64 WORK = (i64)Tile::CHUNKS * C * 8;
    static constexpr int blocks(int) { return Tile::ACROSS * Tile::CHUNKS; }
    DEV int blocks_for(const Args& a, int) { return Tile::across_for(a) * Tile::chunks_for(a); }
    static constexpr int smem(int) { return (SCRATCH + (SUMS + 1) * Tile::WIDE) * 4; }
};

// Small tensors: a block has whole columns. SUMS as for `BatchNormPhases`.
template <i64 ROWS, i64 C, int V, int TX, int THREADS_, int SUMS> struct BatchNormColumns {
    static constexpr int PHASES = 1, THREADS = THREADS_;
    using Tile = norms::Tiles<ROWS, C, V, THREADS, TX, ROWS, 0>;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return Tile::ACROSS; }
    DEV int blocks_for(const Args& a, int) { return Tile::across_for(a); }
    static constexpr int smem(int) { return norms::column_floats(THREADS, TX, SUMS * V) * 4; }
};

// Tensors of medium size, on GPUs with clusters: the blocks of a cluster share whole columns, CHUNK rows each. Blocks
// that follow one another form a cluster; the number of a block in it is that of its chunk. SUMS as for
// `BatchNormPhases`.
template <i64 ROWS, i64 C, int V, int TX, i64 CHUNK, int THREADS_, int SUMS> struct BatchNormClusters {
    static constexpr int PHASES = 1, THREADS = THREADS_, BLOCKS = 8;
    using Tile = norms::Tiles<ROWS, C, V, THREADS, TX, CHUNK>;
    static_assert(!Tile::FIXED || Tile::CHUNKS == BLOCKS, "every block of a cluster has rows");
    static_assert(Tile::TY >= BLOCKS, "a row of threads sends the sums to each block");
    // Floats of scratch, a multiple of four.
    static constexpr int SCRATCH = ceil_div(norms::column_floats(THREADS, TX, SUMS * V), 4) * 4;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return Tile::ACROSS * BLOCKS; }
    DEV int blocks_for(const Args& a, int) { return Tile::across_for(a) * BLOCKS; }
    static constexpr int smem(int) { return (SCRATCH + 2 * BLOCKS * Tile::WIDE) * 4; }

    DEV Tile of(const Args& a, int block) {
        return Tile::of(a, block % BLOCKS * Tile::across_for(a) + block / BLOCKS);
    }
    DEV float2* parts(char* smem, int chunk, const Tile& t) {
        return (float2*)((float*)smem + SCRATCH) + chunk * Tile::WIDE + t.tx * V;
    }
    // Sends two sums of each channel to every block of the cluster, and waits for those of the others. All threads of a
    // column have the same sums.
    DEV void share(const Tile& t, char* smem, const float (&first)[V], const float (&second)[V]) {
        norms::wait_for_cluster();
        if (t.ty < BLOCKS) {
#pragma unroll
            for (int i = 0; i < V; ++i) norms::send(parts(smem, t.chunk, t) + i, t.ty, first[i], second[i]);
        }
        norms::meet_cluster();
    }
    // Calls `use(rows, i, sums)` for the two sums of each block and channel, in the order of the blocks.
    template <class Use> DEV void for_each_part(const Tile& t, char* smem, Use use) {
#pragma unroll
        for (int chunk = 0; chunk < BLOCKS; ++chunk) {
            const int rows = t.rows_of(chunk);
#pragma unroll
            for (int i = 0; i < V; ++i) use(rows, i, parts(smem, chunk, t)[i]);
        }
    }
};

// Slots: x, gamma, beta, mean_prev, var_prev, y, mean, rstd, running_mean, running_var, work, residual. x, y and the
// residual, which is added before the activation if it is bound, are [ROWS, C] of T, the others [C] float.
//
// For small tensors: one phase, no work. A block owns TX groups of V channels and keeps all their rows in registers:
// thread (tx, ty) has the rows ty, ty + TY, ... of ROWS. Mean and variance are two passes over the registers.
// Overwrites; the order of all sums is fixed. Reads x once, writes y once. Rows of C elements are moved in groups of V,
// which must divide C.
//
// EPS is number 3, ACT number 5. A general member is compiled for the rows of a thread, R, rounded up to a power of
// two.
template <class T, i64 ROWS, i64 C, int V, int TX, int THREADS_, u64 EPS, u64 MOMENTUM, int ACT,
    int R = ceil_div(ROWS, THREADS_ / TX)>
struct BatchNormSmall : BatchNormColumns<ROWS, C, V, TX, THREADS_, 1> {
    using Slots = slots::batch_norm;
    using Tile = norms::Tiles<ROWS, C, V, THREADS_, TX, ROWS, 0>;
    static constexpr int THREADS = THREADS_, TY = Tile::TY;
    static constexpr bool EVEN = is_fixed(ROWS) && ROWS % TY == 0;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        float* scratch = (float*)smem;
        const Tile t = Tile::of(a, block);
        const int rows = t.rows;
        const size_t cols = t.cols;
        const T* x = a.at<T>(Slots::X) + t.channel;
        Raw<T, V> raw[R];
#pragma unroll
        for (int r = 0; r < R; ++r) raw[r] = norms::fetch<T, V>(x + (size_t)min_i(t.ty + r * TY, rows - 1) * cols);
        float shift[V], gamma[V], beta[V], d[R][V], sum[V], square[V];
        norms::fetch<T, V>(x).widen(shift);
        norms::floats(a, Slots::GAMMA, t.channel, 1.0f, gamma);
        norms::floats(a, Slots::BETA, t.channel, 0.0f, beta);
        norms::Statistics<MOMENTUM, V> statistics;
        if (t.ty == 0) statistics.get(a, t.channel);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = square[i] = 0.0f;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            raw[r].widen(d[r]);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                d[r][i] -= shift[i];
                if (EVEN || t.ty + r * TY < rows) sum[i] += d[r][i];
            }
        }
        norms::column_sum<THREADS, TX>(sum, scratch);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] *= norms::reciprocal(rows);
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int i = 0; i < V; ++i) {
                d[r][i] -= sum[i];
                if (EVEN || t.ty + r * TY < rows) square[i] = fmaf(d[r][i], d[r][i], square[i]);
            }
        norms::column_sum<THREADS, TX>(square, scratch);
        float rstd[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            shift[i] += sum[i];
            square[i] *= norms::reciprocal(rows);
            rstd[i] = rsqrtf(square[i] + (float)norms::real_number<EPS, 3>(a));
            gamma[i] *= rstd[i];
        }
        if (t.ty == 0 && t.valid) statistics.put(a, rows, t.channel, shift, square, rstd);
        T* y = a.at<T>(Slots::Y) + t.channel;
        const Function<ACT, 5> act(a);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int row = t.ty + r * TY;
#pragma unroll
            for (int i = 0; i < V; ++i) d[r][i] = fmaf(d[r][i], gamma[i], beta[i]);
            if (t.valid && row < rows) {
                if (a.has(Slots::RESIDUAL)) {
                    float beside[V];
                    norms::fetch<T, V>(a.at<T>(Slots::RESIDUAL) + t.channel + (size_t)row * cols).widen(beside);
#pragma unroll
                    for (int i = 0; i < V; ++i) d[r][i] += beside[i];
                }
                act.template of<T>(d[r]);
                norms::put<T, V>(y + (size_t)row * cols, d[r]);
            }
        }
    }
};

// The same for tensors whose columns are too long for one block, on GPUs with clusters: the eight blocks of a cluster
// own TX groups of V channels, and each keeps CHUNK rows of them in registers. A block sends its mean (relative to the
// value in the first row) and its sum of squared deviations of each channel to all blocks of the cluster, which merge
// them by counts, means and squares in the same order. Otherwise like `BatchNormSmall`; CHUNK is number 2.
template <class T, i64 ROWS, i64 C, int V, int TX, i64 CHUNK, int THREADS_, u64 EPS, u64 MOMENTUM, int ACT,
    int R = ceil_div(CHUNK, THREADS_ / TX)>
struct BatchNormCluster : BatchNormClusters<ROWS, C, V, TX, CHUNK, THREADS_, 1> {
    using Slots = slots::batch_norm;
    using Parts = BatchNormClusters<ROWS, C, V, TX, CHUNK, THREADS_, 1>;
    using Tile = typename Parts::Tile;
    static constexpr int THREADS = THREADS_, TY = Tile::TY;
    static constexpr bool EVEN = Tile::FIXED && ROWS % CHUNK == 0 && CHUNK % TY == 0;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        float* scratch = (float*)smem;
        norms::start_cluster();
        const Tile t = Parts::of(a, block);
        const size_t cols = t.cols;
        const T* x = a.at<T>(Slots::X) + t.first;
        Raw<T, V> raw[R];
#pragma unroll
        for (int r = 0; r < R; ++r) raw[r] = norms::fetch<T, V>(x + (size_t)min_i(t.ty + r * TY, t.count - 1) * cols);
        float origin[V], gamma[V], beta[V], d[R][V], sum[V], square[V];
        norms::fetch<T, V>(a.at<T>(Slots::X) + t.channel).widen(origin);
        norms::floats(a, Slots::GAMMA, t.channel, 1.0f, gamma);
        norms::floats(a, Slots::BETA, t.channel, 0.0f, beta);
        norms::Statistics<MOMENTUM, V> statistics;
        const bool writes = t.ty == 0 && t.chunk == 0 && t.valid;
        if (writes) statistics.get(a, t.channel);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = square[i] = 0.0f;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            raw[r].widen(d[r]);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                d[r][i] -= origin[i];
                if (EVEN || t.ty + r * TY < t.count) sum[i] += d[r][i];
            }
        }
        norms::column_sum<THREADS, TX>(sum, scratch);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] *= norms::reciprocal(t.count);
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int i = 0; i < V; ++i) {
                d[r][i] -= sum[i];
                if (EVEN || t.ty + r * TY < t.count) square[i] = fmaf(d[r][i], d[r][i], square[i]);
            }
        norms::column_sum<THREADS, TX>(square, scratch);
        Parts::share(t, smem, sum, square);
        float mean[V], rstd[V];
#pragma unroll
        for (int i = 0; i < V; ++i) mean[i] = square[i] = 0.0f;
        Parts::for_each_part(
            t, smem, [&](int rows, int i, float2 part) { mean[i] = fmaf((float)rows, part.x, mean[i]); });
#pragma unroll
        for (int i = 0; i < V; ++i) mean[i] *= norms::reciprocal(t.rows);
        Parts::for_each_part(t, smem, [&](int rows, int i, float2 part) {
            const float apart = part.x - mean[i];
            square[i] += fmaf((float)rows * apart, apart, part.y);
        });
#pragma unroll
        for (int i = 0; i < V; ++i) {
            square[i] *= norms::reciprocal(t.rows);
            rstd[i] = rsqrtf(square[i] + (float)norms::real_number<EPS, 3>(a));
            gamma[i] *= rstd[i];
            beta[i] = fmaf(sum[i] - mean[i], gamma[i], beta[i]);
            origin[i] += mean[i];
        }
        if (writes) statistics.put(a, t.rows, t.channel, origin, square, rstd);
        T* y = a.at<T>(Slots::Y) + t.first;
        const Function<ACT, 5> act(a);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int row = t.ty + r * TY;
#pragma unroll
            for (int i = 0; i < V; ++i) d[r][i] = fmaf(d[r][i], gamma[i], beta[i]);
            if (t.valid && row < t.count) {
                if (a.has(Slots::RESIDUAL)) {
                    float beside[V];
                    norms::fetch<T, V>(a.at<T>(Slots::RESIDUAL) + t.first + (size_t)row * cols).widen(beside);
#pragma unroll
                    for (int i = 0; i < V; ++i) d[r][i] += beside[i];
                }
                act.template of<T>(d[r]);
                norms::put<T, V>(y + (size_t)row * cols, d[r]);
            }
        }
    }
};

// The same for tensors of any size in two phases; the block (tile, chunk) of `Tiles` in both.
//
// Phase 0 writes each chunk's mean (relative to the value in the first row) and sum of squared deviations per channel
// to the work slot: float pairs [chunks][C]. A thread sums differences to its own first element; threads and chunks are
// then merged by counts, means and squares (Chan, Golub and LeVeque). Phase 1: every block merges the chunks of its
// channels in the same fixed order, the first one writes the statistics, and all normalise their rows, last row first,
// because the rows that were read last are the most likely to be still in the second-level cache. Overwrites;
// deterministic. Reads x twice, writes y once; rows move in groups of V = vec_width(C) elements.
//
// EPS is number 3, ACT number 5. A general member is compiled for V, and for the chunks that a thread merges, rounded
// up to a power of two.
template <class T, i64 ROWS, i64 C, int TX, i64 CHUNK, int THREADS_, u64 EPS, u64 MOMENTUM, int ACT,
    int V = vec_width<T>(C), int MERGES = ceil_div(ceil_div(ROWS, CHUNK), THREADS_ / (TX * V))>
struct BatchNorm : BatchNormPhases<ROWS, C, V, TX, CHUNK, THREADS_, 1> {
    using Slots = slots::batch_norm;
    using Tile = norms::Tiles<ROWS, C, V, THREADS_, TX, CHUNK>;
    using Item = Raw<T, V>;
    static constexpr int THREADS = THREADS_, TY = Tile::TY, WIDE = Tile::WIDE, PARTS = THREADS / WIDE;
    static constexpr int U = Tile::FIXED ? norms::batch(4, (int)(CHUNK / TY)) : 4;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) moments(a, block, (float*)smem);
        else normalise(a, block, (float*)smem);
    }

    DEV void moments(const Args& a, int block, float* scratch) {
        const Tile t = Tile::of(a, block);
        const int cols = t.cols;
        const T* x = a.at<T>(Slots::X) + t.first;
        const auto get = [&](int j) { return norms::fetch<T, V>(x + (size_t)j * cols); };
        Item now[U];
        norms::get_batch<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get);
        float origin[V], shift[V], sum[V], square[V], mean[V], v[V];
        norms::fetch<T, V>(a.at<T>(Slots::X) + t.channel).widen(origin);
        now[0].widen(shift);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = square[i] = 0.0f;
        norms::walk<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get, [&](int, const Item& item) {
            item.widen(v);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                const float d = v[i] - shift[i];
                sum[i] += d;
                square[i] = fmaf(d, d, square[i]);
            }
        });
        const float mine = t.ty < t.count ? (float)((t.count - 1 - t.ty) / TY + 1) : 0.0f,
                    share = mine > 0.0f ? __fdividef(1.0f, mine) : 0.0f;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float m = sum[i] * share, rest = fmaf(-sum[i], m, square[i]);
            mean[i] = shift[i] - origin[i] + m;
            square[i] = rest < 0.0f ? 0.0f : rest;
            sum[i] = mine * mean[i];
        }
        norms::column_sum<THREADS, TX>(sum, scratch);
        const float all = norms::reciprocal(t.count);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            sum[i] *= all;
            square[i] = fmaf(mine * (mean[i] - sum[i]), mean[i] - sum[i], square[i]);
        }
        norms::column_sum<THREADS, TX>(square, scratch);
        if (t.ty == 0 && t.valid) {
            float* work = a.at<float>(Slots::WORK) + 2 * ((size_t)t.chunk * cols + t.channel);
#pragma unroll
            for (int i = 0; i < V; ++i) *(float2*)(work + 2 * i) = make_float2(sum[i], square[i]);
        }
    }

    DEV void normalise(const Args& a, int block, float* scratch) {
        const Tile t = Tile::of(a, block);
        const int cols = t.cols;
        const size_t last = t.first + (size_t)(t.count - 1) * cols;
        const T* x = a.at<T>(Slots::X) + last;
        T* y = a.at<T>(Slots::Y) + last;
        const T* beside = a.has(Slots::RESIDUAL) ? a.at<T>(Slots::RESIDUAL) + last : nullptr;
        const auto get = [&](int j) { return norms::fetch<T, V>(x - (size_t)j * cols); };
        Item now[U];
        norms::get_batch<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get);
        float origin[V], v[V];
        norms::fetch<T, V>(a.at<T>(Slots::X) + t.channel).widen(origin);

        // One thread for each channel and part of the chunks.
        float* param = scratch + BatchNormPhases<ROWS, C, V, TX, CHUNK, THREADS_, 1>::SCRATCH;
        const int column = threadIdx.x % WIDE, part = threadIdx.x / WIDE, channel = t.tile * WIDE + column;
        const bool known = (Tile::FIXED && C % WIDE == 0) || channel < cols;
        float2 partial[MERGES];
        float rows[MERGES], merged[1] = {0.0f}, square[1] = {0.0f}, gamma[1], beta[1], from = 0.0f;
#pragma unroll
        for (int k = 0; k < MERGES; ++k) {
            const int chunk = part + k * PARTS;
            partial[k] = make_float2(0.0f, 0.0f);
            rows[k] = 0.0f;
            if (known && ((Tile::FIXED && Tile::CHUNKS % PARTS == 0) || chunk < t.chunks)) {
                partial[k] = *(const float2*)(a.at<float>(Slots::WORK) + 2 * ((size_t)chunk * cols + channel));
                rows[k] = (float)t.rows_of(chunk);
            }
        }
        norms::Statistics<MOMENTUM, 1> statistics;
        const bool writes = part == 0 && known && t.chunk == 0;
        if (part == 0 && known) {
            norms::floats(a, Slots::GAMMA, channel, 1.0f, gamma);
            norms::floats(a, Slots::BETA, channel, 0.0f, beta);
            from = to_float(a.at<T>(Slots::X)[channel]);
            if (writes) statistics.get(a, channel);
        }
#pragma unroll
        for (int k = 0; k < MERGES; ++k) merged[0] = fmaf(rows[k], partial[k].x, merged[0]);
        norms::column_sum<THREADS, WIDE>(merged, scratch);
        const float mean = merged[0] * norms::reciprocal(t.rows);
#pragma unroll
        for (int k = 0; k < MERGES; ++k)
            if (Tile::FIXED || rows[k] > 0.0f)
                square[0] += fmaf(rows[k] * (partial[k].x - mean), partial[k].x - mean, partial[k].y);
        norms::column_sum<THREADS, WIDE>(square, scratch);
        if (part == 0 && known) {
            square[0] *= norms::reciprocal(t.rows);
            const float rstd[1] = {rsqrtf(square[0] + (float)norms::real_number<EPS, 3>(a))}, value[1] = {from + mean};
            param[column] = gamma[0] * rstd[0];
            param[WIDE + column] = fmaf(-mean, gamma[0] * rstd[0], beta[0]);
            if (writes) statistics.put(a, t.rows, channel, value, square, rstd);
        }
        __syncthreads();
        float scale[V], offset[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            scale[i] = param[t.tx * V + i];
            offset[i] = param[WIDE + t.tx * V + i];
        }
        const Function<ACT, 5> act(a);
        norms::walk<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get, [&](int j, const Item& item) {
            item.widen(v);
#pragma unroll
            for (int i = 0; i < V; ++i) v[i] = fmaf(v[i] - origin[i], scale[i], offset[i]);
            if (beside) {
                float more[V];
                norms::fetch<T, V>(beside - (size_t)j * cols).widen(more);
#pragma unroll
                for (int i = 0; i < V; ++i) v[i] += more[i];
            }
            act.template of<T>(v);
            if (t.valid) norms::put<T, V>(y - (size_t)j * cols, v);
        });
    }
};

// Slots: x, gamma, beta, running_mean, running_var, y (which may be x). One phase over the blocks of `Tiles`; a thread
// computes the factors of its channels once and then loops over rows. Overwrites. Reads x once, writes y once. EPS is
// number 3, ACT number 4.
template <class T, i64 ROWS, i64 C, int TX, i64 CHUNK, int THREADS_, u64 EPS, int ACT, int V = vec_width<T>(C)>
struct BatchNormEval {
    using Slots = slots::batch_norm_eval;
    static constexpr int PHASES = 1, THREADS = THREADS_;
    using Tile = norms::Tiles<ROWS, C, V, THREADS, TX, CHUNK>;
    static constexpr int TY = Tile::TY, U = Tile::FIXED ? norms::batch(4, (int)(CHUNK / TY)) : 4;
    static constexpr long long WORK = 0;
    static constexpr int blocks(int) { return Tile::ACROSS * Tile::CHUNKS; }
    DEV int blocks_for(const Args& a, int) { return Tile::across_for(a) * Tile::chunks_for(a); }
    static constexpr int smem(int) { return 0; }
    using Item = Raw<T, V>;

    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const Tile t = Tile::of(a, block);
        const int cols = t.cols;
        const T* x = a.at<T>(Slots::X) + t.first;
        T* y = a.at<T>(Slots::Y) + t.first;
        const auto get = [&](int j) { return norms::fetch<T, V>(x + (size_t)j * cols); };
        Item now[U];
        norms::get_batch<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get);
        float scale[V], beta[V], mean[V], var[V], v[V];
        norms::floats(a, Slots::GAMMA, t.channel, 1.0f, scale);
        norms::floats(a, Slots::BETA, t.channel, 0.0f, beta);
        norms::floats(a, Slots::RUNNING_MEAN, t.channel, 0.0f, mean);
        norms::floats(a, Slots::RUNNING_VAR, t.channel, 1.0f, var);
#pragma unroll
        for (int i = 0; i < V; ++i) scale[i] *= rsqrtf(var[i] + (float)norms::real_number<EPS, 3>(a));
        const Function<ACT, 4> act(a);
        norms::walk<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get, [&](int j, const Item& item) {
            item.widen(v);
#pragma unroll
            for (int i = 0; i < V; ++i) v[i] = fmaf(v[i] - mean[i], scale[i], beta[i]);
            act.template of<T>(v);
            if (t.valid) norms::put<T, V>(y + (size_t)j * cols, v);
        });
    }
};

// ---------------------------------------- batch normalisation, backward

namespace norms {
// The inputs of the backward pass for one row. `saved` is read only if the derivative of an activation is applied,
// which is number 3.
template <class T, int V, int ACT_GRAD> struct BwdItem {
    using Slots = slots::batch_norm_bwd;
    Raw<T, V> dy, x, saved;
    DEV BwdItem of(const Args& a, size_t at) {
        BwdItem item;
        item.dy = fetch<T, V>(a.at<T>(Slots::DY) + at);
        item.x = fetch<T, V>(a.at<T>(Slots::X) + at);
        if constexpr (ACT_GRAD != NONE) item.saved = fetch<T, V>(a.at<T>(Slots::SAVED) + at);
        return item;
    }
    // g = dy f'(saved) and x - mean.
    __device__ __forceinline__ void take(
        const Args& a, const float (&mean)[V], float (&g)[V], float (&centred)[V]) const {
        dy.widen(g);
        x.widen(centred);
#pragma unroll
        for (int i = 0; i < V; ++i) centred[i] -= mean[i];
        if constexpr (ACT_GRAD != NONE) {
            float s[V];
            saved.widen(s);
            const Function<ACT_GRAD, 3> act(a);
            act.template grad<T>(s);
#pragma unroll
            for (int i = 0; i < V; ++i) g[i] *= s[i];
        }
    }
};
}  // namespace norms

// Slots: dy, x, gamma, mean, rstd, saved, dgamma_prev, dbeta_prev, dx, dgamma, dbeta, work. dy, x, saved, dx [ROWS, C]
// of T (dx may be dy), the others [C] float. With the sums over rows of g and of g x^: dx = gamma rstd (g - sum / ROWS
// - x^ sum' / ROWS).
//
// For small tensors: one phase, no work; a block owns TX groups of V channels and keeps all their rows in registers. dx
// overwrites, dgamma and dbeta accumulate if ACCUMULATE; the order of all sums is fixed. Reads dy, x (and saved) once,
// writes dx once.
template <class T, i64 ROWS, i64 C, int V, int TX, int THREADS_, int ACT_GRAD, bool ACCUMULATE,
    int R = ceil_div(ROWS, THREADS_ / TX)>
struct BatchNormBwdSmall : BatchNormColumns<ROWS, C, V, TX, THREADS_, 2> {
    using Slots = slots::batch_norm_bwd;
    using Tile = norms::Tiles<ROWS, C, V, THREADS_, TX, ROWS, 0>;
    using Item = norms::BwdItem<T, V, ACT_GRAD>;
    static constexpr int THREADS = THREADS_, TY = Tile::TY;
    static constexpr bool EVEN = is_fixed(ROWS) && ROWS % TY == 0;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Tile t = Tile::of(a, block);
        const int rows = t.rows;
        const size_t cols = t.cols;
        Item raw[R];
#pragma unroll
        for (int r = 0; r < R; ++r) raw[r] = Item::of(a, t.first + (size_t)min_i(t.ty + r * TY, rows - 1) * cols);
        float gamma[V], mean[V], rstd[V], g[R][V], centred[R][V], sum[2 * V];
        norms::floats(a, Slots::GAMMA, t.channel, 1.0f, gamma);
        norms::floats(a, Slots::MEAN, t.channel, 0.0f, mean);
        norms::floats(a, Slots::RSTD, t.channel, 1.0f, rstd);
        float dgamma[V], dbeta[V];
        const bool writes = t.ty == 0 && t.valid;
        if (writes) {
            norms::previous<ACCUMULATE>(a, Slots::DGAMMA, t.channel, dgamma);
            norms::previous<ACCUMULATE>(a, Slots::DBETA, t.channel, dbeta);
        }
#pragma unroll
        for (int i = 0; i < 2 * V; ++i) sum[i] = 0.0f;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            raw[r].take(a, mean, g[r], centred[r]);
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (EVEN || t.ty + r * TY < rows) {
                    sum[i] += g[r][i];
                    sum[V + i] = fmaf(g[r][i], centred[r][i], sum[V + i]);
                }
        }
        norms::column_sum<THREADS, TX>(sum, (float*)smem);
        float offset[V], slope[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            sum[V + i] *= rstd[i];
            gamma[i] *= rstd[i];
            slope[i] = -gamma[i] * rstd[i] * (sum[V + i] * norms::reciprocal(rows));
            offset[i] = -gamma[i] * (sum[i] * norms::reciprocal(rows));
        }
        if (writes) {
            norms::put_gradient(a, Slots::DGAMMA, t.channel, dgamma, sum + V);
            norms::put_gradient(a, Slots::DBETA, t.channel, dbeta, sum);
        }
        if (!a.has(Slots::DX) || !t.valid) return;
        T* dx = a.at<T>(Slots::DX) + t.first;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int row = t.ty + r * TY;
#pragma unroll
            for (int i = 0; i < V; ++i) g[r][i] = fmaf(gamma[i], g[r][i], fmaf(slope[i], centred[r][i], offset[i]));
            if (row < rows) norms::put<T, V>(dx + (size_t)row * cols, g[r]);
        }
    }
};

// The same with clusters: see `BatchNormCluster`. A block sends its sums of g and of g (x - mean) to all blocks of its
// cluster, which add them in the same order. CHUNK is number 2.
template <class T, i64 ROWS, i64 C, int V, int TX, i64 CHUNK, int THREADS_, int ACT_GRAD, bool ACCUMULATE,
    int R = ceil_div(CHUNK, THREADS_ / TX)>
struct BatchNormBwdCluster : BatchNormClusters<ROWS, C, V, TX, CHUNK, THREADS_, 2> {
    using Slots = slots::batch_norm_bwd;
    using Parts = BatchNormClusters<ROWS, C, V, TX, CHUNK, THREADS_, 2>;
    using Tile = typename Parts::Tile;
    using Item = norms::BwdItem<T, V, ACT_GRAD>;
    static constexpr int THREADS = THREADS_, TY = Tile::TY;
    static constexpr bool EVEN = Tile::FIXED && ROWS % CHUNK == 0 && CHUNK % TY == 0;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        norms::start_cluster();
        const Tile t = Parts::of(a, block);
        const size_t cols = t.cols;
        Item raw[R];
#pragma unroll
        for (int r = 0; r < R; ++r) raw[r] = Item::of(a, t.first + (size_t)min_i(t.ty + r * TY, t.count - 1) * cols);
        float gamma[V], mean[V], rstd[V], g[R][V], centred[R][V], sum[2 * V], dgamma[V], dbeta[V];
        norms::floats(a, Slots::GAMMA, t.channel, 1.0f, gamma);
        norms::floats(a, Slots::MEAN, t.channel, 0.0f, mean);
        norms::floats(a, Slots::RSTD, t.channel, 1.0f, rstd);
        const bool writes = t.ty == 0 && t.chunk == 0 && t.valid;
        if (writes) {
            norms::previous<ACCUMULATE>(a, Slots::DGAMMA, t.channel, dgamma);
            norms::previous<ACCUMULATE>(a, Slots::DBETA, t.channel, dbeta);
        }
#pragma unroll
        for (int i = 0; i < 2 * V; ++i) sum[i] = 0.0f;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            raw[r].take(a, mean, g[r], centred[r]);
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (EVEN || t.ty + r * TY < t.count) {
                    sum[i] += g[r][i];
                    sum[V + i] = fmaf(g[r][i], centred[r][i], sum[V + i]);
                }
        }
        norms::column_sum<THREADS, TX>(sum, (float*)smem);
        float total[V], product[V], offset[V], slope[V];
#pragma unroll
        for (int i = 0; i < V; ++i) total[i] = sum[i], product[i] = sum[V + i];
        Parts::share(t, smem, total, product);
#pragma unroll
        for (int i = 0; i < V; ++i) total[i] = product[i] = 0.0f;
        Parts::for_each_part(t, smem, [&](int, int i, float2 part) {
            total[i] += part.x;
            product[i] += part.y;
        });
#pragma unroll
        for (int i = 0; i < V; ++i) {
            product[i] *= rstd[i];
            gamma[i] *= rstd[i];
            slope[i] = -gamma[i] * rstd[i] * (product[i] * norms::reciprocal(t.rows));
            offset[i] = -gamma[i] * (total[i] * norms::reciprocal(t.rows));
        }
        if (writes) {
            norms::put_gradient(a, Slots::DGAMMA, t.channel, dgamma, product);
            norms::put_gradient(a, Slots::DBETA, t.channel, dbeta, total);
        }
        if (!a.has(Slots::DX) || !t.valid) return;
        T* dx = a.at<T>(Slots::DX) + t.first;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int row = t.ty + r * TY;
#pragma unroll
            for (int i = 0; i < V; ++i) g[r][i] = fmaf(gamma[i], g[r][i], fmaf(slope[i], centred[r][i], offset[i]));
            if (row < t.count) norms::put<T, V>(dx + (size_t)row * cols, g[r]);
        }
    }
};

// The same for tensors of any size in two phases; the block (tile, chunk) of `Tiles` in both. Phase 0 sums g and g (x -
// mean) of each chunk into the work slot: float pairs [chunks][C]. Phase 1: every block adds the chunks' sums of its
// channels in the same fixed order, the first one writes dgamma and dbeta, and all compute dx of their rows, last row
// first. Reads dy, x (and saved) twice, writes dx once.
template <class T, i64 ROWS, i64 C, int TX, i64 CHUNK, int THREADS_, int ACT_GRAD, bool ACCUMULATE,
    int V = vec_width<T>(C)>
struct BatchNormBwd : BatchNormPhases<ROWS, C, V, TX, CHUNK, THREADS_, 2> {
    using Slots = slots::batch_norm_bwd;
    using Item = norms::BwdItem<T, V, ACT_GRAD>;
    using Tile = norms::Tiles<ROWS, C, V, THREADS_, TX, CHUNK>;
    static constexpr int THREADS = THREADS_, TY = Tile::TY, WIDE = Tile::WIDE, PARTS = THREADS / WIDE;
    static constexpr int U = Tile::FIXED ? norms::batch(2, (int)(CHUNK / TY)) : 2;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        float* scratch = (float*)smem;
        const Tile t = Tile::of(a, block);
        const int cols = t.cols, merges = ceil_div(t.chunks, PARTS);
        float mean[V], g[V], centred[V];
        Item now[U];
        if constexpr (PHASE == 0) {
            const auto get = [&](int j) { return Item::of(a, t.first + (size_t)j * cols); };
            norms::get_batch<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get);
            norms::floats(a, Slots::MEAN, t.channel, 0.0f, mean);
            float sum[2 * V];
#pragma unroll
            for (int i = 0; i < 2 * V; ++i) sum[i] = 0.0f;
            norms::walk<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get, [&](int, const Item& item) {
                item.take(a, mean, g, centred);
#pragma unroll
                for (int i = 0; i < V; ++i) {
                    sum[i] += g[i];
                    sum[V + i] = fmaf(g[i], centred[i], sum[V + i]);
                }
            });
            norms::column_sum<THREADS, TX>(sum, scratch);
            if (t.ty == 0 && t.valid) {
                float* work = a.at<float>(Slots::WORK) + 2 * ((size_t)t.chunk * cols + t.channel);
#pragma unroll
                for (int i = 0; i < V; ++i) *(float2*)(work + 2 * i) = make_float2(sum[i], sum[V + i]);
            }
        } else {
            const size_t last = t.first + (size_t)(t.count - 1) * cols;
            const auto get = [&](int j) { return Item::of(a, last - (size_t)j * cols); };
            norms::get_batch<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get);
            norms::floats(a, Slots::MEAN, t.channel, 0.0f, mean);

            float* param = scratch + BatchNormPhases<ROWS, C, V, TX, CHUNK, THREADS_, 2>::SCRATCH;
            const int column = threadIdx.x % WIDE, part = threadIdx.x / WIDE, channel = t.tile * WIDE + column;
            const bool known = (Tile::FIXED && C % WIDE == 0) || channel < cols;
            float sum[2] = {0.0f, 0.0f}, rstd = 0.0f, gamma[1], dgamma[1], dbeta[1];
            if (part == 0 && known) {
                rstd = a.at<float>(Slots::RSTD)[channel];
                norms::floats(a, Slots::GAMMA, channel, 1.0f, gamma);
                if (t.chunk == 0) {
                    norms::previous<ACCUMULATE>(a, Slots::DGAMMA, channel, dgamma);
                    norms::previous<ACCUMULATE>(a, Slots::DBETA, channel, dbeta);
                }
            }
#pragma unroll
            for (int k = 0; k < merges; ++k) {
                const int chunk = part + k * PARTS;
                float2 partial = make_float2(0.0f, 0.0f);
                if (known && ((Tile::FIXED && Tile::CHUNKS % PARTS == 0) || chunk < t.chunks))
                    partial = *(const float2*)(a.at<float>(Slots::WORK) + 2 * ((size_t)chunk * cols + channel));
                sum[0] += partial.x;
                sum[1] += partial.y;
            }
            norms::column_sum<THREADS, WIDE>(sum, scratch);
            if (part == 0 && known) {
                const float scale = gamma[0] * rstd;
                sum[1] *= rstd;
                if (t.chunk == 0) {
                    norms::put_gradient(a, Slots::DGAMMA, channel, dgamma, sum + 1);
                    norms::put_gradient(a, Slots::DBETA, channel, dbeta, sum);
                }
                param[column] = scale;
                param[WIDE + column] = -scale * rstd * (sum[1] * norms::reciprocal(t.rows));
                param[2 * WIDE + column] = -scale * (sum[0] * norms::reciprocal(t.rows));
            }
            __syncthreads();
            if (!a.has(Slots::DX)) return;
            float scale[V], slope[V], offset[V];
#pragma unroll
            for (int i = 0; i < V; ++i) {
                scale[i] = param[t.tx * V + i];
                slope[i] = param[WIDE + t.tx * V + i];
                offset[i] = param[2 * WIDE + t.tx * V + i];
            }
            T* dx = a.at<T>(Slots::DX) + last;
            norms::walk<U, TY, Tile::template even<U>()>(now, t.ty, t.count, get, [&](int j, const Item& item) {
                item.take(a, mean, g, centred);
#pragma unroll
                for (int i = 0; i < V; ++i) g[i] = fmaf(scale[i], g[i], fmaf(slope[i], centred[i], offset[i]));
                if (t.valid) norms::put<T, V>(dx - (size_t)j * cols, g);
            });
        }
    }
};

// ---------------------------------------- layer normalisation

// Slots: x, gamma, beta, y, mean, rstd. x, y [ROWS, COLS] of T, gamma, beta [COLS], mean, rstd [ROWS] float.
//
// One phase: TPR threads share a row (a power of two up to 32, or the whole block) and hold it in registers if that
// takes at most 32 floats for each thread; longer rows are read three times. First the mean, then the variance, of the
// differences to the row's first element. Overwrites; the order of all sums is fixed. Rows move in groups of V =
// vec_width(COLS) elements.
//
// RMS: rows are divided by their root mean square. They are not centred, so the squares are those of the elements, long
// rows are read twice, and beta and mean are unused.
//
// ROWS, COLS and EPS are the numbers 0 to 2. A general member is compiled for V, and for N, the groups of a thread,
// rounded up to a power of two.
template <class T, i64 ROWS, i64 COLS, int TPR, int THREADS_, u64 EPS, bool RMS = false, int V = vec_width<T>(COLS),
    int N = ceil_div(COLS / V, TPR)>
struct LayerNorm {
    using Slots = slots::layer_norm;
    static constexpr int PHASES = 1, THREADS = THREADS_, AT_ONCE = THREADS / TPR;
    static constexpr bool EVEN = is_fixed(COLS) && COLS / V % TPR == 0;
    static constexpr bool KEEP = N * V <= 32;
    static constexpr long long WORK = 0;
    static constexpr int blocks(int) { return ceil_div(ROWS, AT_ONCE); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(Number<ROWS, 0>(a), AT_ONCE); }
    static constexpr int smem(int) { return THREADS / 32 * 4; }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        float* scratch = (float*)smem;
        const int rows = (int)Number<ROWS, 0>(a), cols = (int)Number<COLS, 1>(a), groups = cols / V;
        const int lane = threadIdx.x % TPR, row = block * AT_ONCE + threadIdx.x / TPR;
        const bool valid = row < rows;
        const size_t first = (size_t)min_i(row, rows - 1) * cols;
        const T* x = a.at<T>(Slots::X) + first;
        T* y = a.at<T>(Slots::Y) + first;
        const float origin = RMS ? 0.0f : to_float(x[0]);
        float kept[KEEP ? N : 1][V], sum[1] = {0.0f}, square[1] = {0.0f};
        // Calls `use(group, differences)` for each of this thread's groups.
        const auto each = [&](auto use) {
            if constexpr (KEEP) {
#pragma unroll
                for (int n = 0; n < N; ++n)
                    if (EVEN || lane + n * TPR < groups) use(lane + n * TPR, kept[n]);
            } else {
#pragma unroll 4
                for (int group = lane; group < groups; group += TPR) {
                    norms::fetch<T, V>(x + group * V).widen(kept[0]);
#pragma unroll
                    for (int i = 0; i < V; ++i) kept[0][i] -= origin;
                    use(group, kept[0]);
                }
            }
        };
        if constexpr (KEEP) {
            Raw<T, V> raw[N];
#pragma unroll
            for (int n = 0; n < N; ++n) raw[n] = norms::fetch<T, V>(x + min_i(lane + n * TPR, groups - 1) * V);
#pragma unroll
            for (int n = 0; n < N; ++n) {
                raw[n].widen(kept[n]);
#pragma unroll
                for (int i = 0; i < V; ++i) kept[n][i] -= origin;
            }
        }
        if constexpr (!RMS) {
            each([&](int, float(&d)[V]) {
#pragma unroll
                for (int i = 0; i < V; ++i) sum[0] += d[i];
            });
            norms::row_sum<THREADS, TPR>(sum, scratch);
        }
        const float share = norms::reciprocal(cols), mean = sum[0] * share;
        each([&](int, float(&d)[V]) {
#pragma unroll
            for (int i = 0; i < V; ++i) square[0] = fmaf(d[i] - mean, d[i] - mean, square[0]);
        });
        norms::row_sum<THREADS, TPR>(square, scratch);
        const float rstd = rsqrtf(fmaf(square[0], share, (float)norms::real_number<EPS, 2>(a)));
        if (!valid) return;
        if (lane == 0) {
            if (!RMS && a.has(Slots::MEAN)) a.at<float>(Slots::MEAN)[row] = origin + mean;
            if (a.has(Slots::RSTD)) a.at<float>(Slots::RSTD)[row] = rstd;
        }
        each([&](int group, float(&d)[V]) {
            float gamma[V], beta[V], out[V];
            norms::floats(a, Slots::GAMMA, group * V, 1.0f, gamma);
            norms::floats(a, RMS ? -1 : Slots::BETA, group * V, 0.0f, beta);
#pragma unroll
            for (int i = 0; i < V; ++i) out[i] = fmaf((d[i] - mean) * rstd, gamma[i], beta[i]);
            norms::put<T, V>(y + group * V, out);
        });
    }
};

namespace norms {
// Parameters whose gradients are summed over the rows: gamma, and beta if rows are centred.
__host__ __device__ constexpr int row_parameters(bool rms) { return rms ? 1 : 2; }
// The mean of a row; 0 if rows are not centred.
template <bool RMS> DEV float row_mean(const Args& a, int row) {
    if constexpr (RMS) return 0.0f;
    else return a.at<float>(slots::layer_norm_bwd::MEAN)[row];
}

// dx of one row by TPR threads, with the row in registers (N groups of V for each thread). If SUMS, the row's dy x^ and
// dy are added to `column`. Sums over a row: g, which is omitted if RMS, and g x^ at the index GX.
template <class T, i64 COLS, int TPR, int THREADS, bool SUMS, int N, int V, bool RMS> DEV void layer_norm_row(
    const Args& a, int row, bool valid, float (&column)[row_parameters(RMS) * N * V], float* scratch) {
    using Slots = slots::layer_norm_bwd;
    constexpr bool EVEN = is_fixed(COLS) && COLS / V % TPR == 0;
    constexpr int GX = RMS ? 0 : 1;
    const int cols = (int)Number<COLS, 1>(a), groups = cols / V;
    const int lane = threadIdx.x % TPR;
    const size_t first = (size_t)row * cols;
    Raw<T, V> raw[2][N], residual[N];
    const bool adds = a.has(Slots::RESIDUAL);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const size_t at = first + min_i(lane + n * TPR, groups - 1) * V;
        raw[0][n] = fetch<T, V>(a.at<T>(Slots::DY) + at);
        raw[1][n] = fetch<T, V>(a.at<T>(Slots::X) + at);
        if (adds) residual[n] = fetch<T, V>(a.at<T>(Slots::RESIDUAL) + at);
    }
    const float mean = row_mean<RMS>(a, row), rstd = a.at<float>(Slots::RSTD)[row];
    float g[N][V], normal[N][V], sum[GX + 1] = {};
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const bool in = valid && (EVEN || lane + n * TPR < groups);
        float gamma[V];
        floats(a, Slots::GAMMA, min_i(lane + n * TPR, groups - 1) * V, 1.0f, gamma);
        raw[0][n].widen(g[n]);
        raw[1][n].widen(normal[n]);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            normal[n][i] = (normal[n][i] - mean) * rstd;
            if (SUMS && in) {
                column[n * V + i] = fmaf(g[n][i], normal[n][i], column[n * V + i]);
                if constexpr (!RMS) column[(N + n) * V + i] += g[n][i];
            }
            g[n][i] *= gamma[i];
            if (in) {
                if constexpr (!RMS) sum[0] += g[n][i];
                sum[GX] = fmaf(g[n][i], normal[n][i], sum[GX]);
            }
        }
    }
    row_sum<THREADS, TPR>(sum, scratch);
    if (!a.has(Slots::DX) || !valid) return;
    const float mean_g = RMS ? 0.0f : sum[0] * reciprocal(cols), mean_gx = sum[GX] * reciprocal(cols);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        if (!EVEN && lane + n * TPR >= groups) continue;
#pragma unroll
        for (int i = 0; i < V; ++i) g[n][i] = rstd * fmaf(-normal[n][i], mean_gx, g[n][i] - mean_g);
        if (adds) {
            residual[n].widen(normal[n]);
#pragma unroll
            for (int i = 0; i < V; ++i) g[n][i] += normal[n][i];
        }
        put<T, V>(a.at<T>(Slots::DX) + first + (lane + n * TPR) * V, g[n]);
    }
}

// The same by a whole block for rows that do not fit into registers: they are read twice.
template <class T, i64 COLS, int THREADS, int V, bool RMS>
DEV void layer_norm_long_row(const Args& a, int row, float* scratch) {
    using Slots = slots::layer_norm_bwd;
    constexpr int GX = RMS ? 0 : 1;
    const int cols = (int)Number<COLS, 1>(a);
    const size_t first = (size_t)row * cols;
    const float mean = row_mean<RMS>(a, row), rstd = a.at<float>(Slots::RSTD)[row];
    float g[V], normal[V], gamma[V], sum[GX + 1] = {};
    const auto get = [&](int col) {
        fetch<T, V>(a.at<T>(Slots::DY) + first + col).widen(g);
        fetch<T, V>(a.at<T>(Slots::X) + first + col).widen(normal);
        floats(a, Slots::GAMMA, col, 1.0f, gamma);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            g[i] *= gamma[i];
            normal[i] = (normal[i] - mean) * rstd;
        }
    };
#pragma unroll 2
    for (int col = threadIdx.x * V; col < cols; col += THREADS * V) {
        get(col);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            if constexpr (!RMS) sum[0] += g[i];
            sum[GX] = fmaf(g[i], normal[i], sum[GX]);
        }
    }
    row_sum<THREADS, THREADS>(sum, scratch);
    if (!a.has(Slots::DX)) return;
    const float mean_g = RMS ? 0.0f : sum[0] * reciprocal(cols), mean_gx = sum[GX] * reciprocal(cols);
#pragma unroll 2
    for (int col = threadIdx.x * V; col < cols; col += THREADS * V) {
        get(col);
#pragma unroll
        for (int i = 0; i < V; ++i) g[i] = rstd * fmaf(-normal[i], mean_gx, g[i] - mean_g);
        if (a.has(Slots::RESIDUAL)) {
            fetch<T, V>(a.at<T>(Slots::RESIDUAL) + first + col).widen(normal);
#pragma unroll
            for (int i = 0; i < V; ++i) g[i] += normal[i];
        }
        put<T, V>(a.at<T>(Slots::DX) + first + col, g);
    }
}
}  // namespace norms

// Slots: dy, x, gamma, mean, rstd, dgamma_prev, dbeta_prev, dx, dgamma, dbeta, work, residual. dy, x, dx [ROWS, COLS]
// of T, gamma, dgamma, dbeta [COLS], mean, rstd [ROWS] float. dx overwrites, dgamma and dbeta accumulate if ACCUMULATE;
// the order of all sums is fixed.
//
// Two phases, each input read once. Phase 0: a block takes CHUNK rows, THREADS / TPR at a time, writes their dx and
// keeps the sums for dgamma and dbeta of its columns in registers; they go to the work slot as floats
// [chunks][2][COLS]. Phase 1 adds the chunks, EACH columns a block. dx may be dy. Rows move in groups of V =
// vec_width(COLS) elements.
//
// If residual [ROWS, COLS] (T) is bound, it is added to dx.
//
// RMS: the derivative of rows that are not centred. mean, dbeta_prev and dbeta are unused, and work is
// [chunks][1][COLS].
//
// ROWS, COLS and CHUNK are the numbers 0 to 2. A general member is compiled for V, and for N, the groups of a thread,
// rounded up to a power of two; or 3 if a warp has a row.
template <class T, i64 ROWS, i64 COLS, int TPR, i64 CHUNK, int THREADS_, bool ACCUMULATE, bool RMS = false,
    int V = vec_width<T>(COLS), int N = ceil_div(COLS / V, TPR)>
struct LayerNormBwd {
    using Slots = slots::layer_norm_bwd;
    static constexpr int PHASES = 2, THREADS = THREADS_, AT_ONCE = THREADS / TPR;
    static constexpr bool EVEN = is_fixed(COLS) && COLS / V % TPR == 0;
    static constexpr int CHUNKS = ceil_div(ROWS, CHUNK), P = norms::row_parameters(RMS);
    // Few columns, so that many threads share the chunks of each; as wide as the smallest memory transaction.
    static constexpr int EACH = 8;
    static constexpr long long WORK = (long long)CHUNKS * P * COLS * 4;
    static constexpr int SCRATCH = max_i(
        max_i(norms::column_floats(THREADS, TPR, P * N * V), norms::column_floats(THREADS, EACH, 1)), THREADS / 32 * 2);
    static constexpr int blocks(int phase) { return phase == 0 ? CHUNKS : ceil_div(P * COLS, EACH); }
    DEV int chunks_for(const Args& a) { return ceil_div(Number<ROWS, 0>(a), Number<CHUNK, 2>(a)); }
    DEV int blocks_for(const Args& a, int phase) {
        return phase == 0 ? chunks_for(a) : ceil_div(P * Number<COLS, 1>(a), EACH);
    }
    static constexpr int smem(int) { return SCRATCH * 4; }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        float* scratch = (float*)smem;
        const int rows = (int)Number<ROWS, 0>(a), cols = (int)Number<COLS, 1>(a), height = (int)Number<CHUNK, 2>(a),
                  chunks = chunks_for(a);
        if constexpr (PHASE == 0) {
            const int lane = threadIdx.x % TPR, end = min_i((block + 1) * height, rows);
            float column[P * N * V];
#pragma unroll
            for (int i = 0; i < P * N * V; ++i) column[i] = 0.0f;
#pragma unroll 1
            for (int from = block * height; from < end; from += AT_ONCE) {
                const int row = from + threadIdx.x / TPR;
                norms::layer_norm_row<T, COLS, TPR, THREADS, true, N, V, RMS>(
                    a, min_i(row, end - 1), row < end, column, scratch);
            }
            norms::column_sum<THREADS, TPR>(column, scratch);
            if (threadIdx.x < TPR) {
                float* work = a.at<float>(Slots::WORK) + (size_t)block * P * cols;
#pragma unroll
                for (int n = 0; n < P * N; ++n) {
                    const int group = lane + n % N * TPR;
                    if (EVEN || group < cols / V)
                        norms::put<float, V>(work + n / N * cols + group * V, *(const float (*)[V])(column + n * V));
                }
            }
        } else {
            const int column = block * EACH + threadIdx.x % EACH;
            const float* work = a.at<float>(Slots::WORK) + column;
            const bool writes = threadIdx.x < EACH && column < P * cols;
            float sum[1] = {0.0f}, before[1];
            if (writes) norms::previous<ACCUMULATE>(a, column < cols ? 8 : 9, column % cols, before);
            if (column < P * cols) {
#pragma unroll 8
                for (int chunk = threadIdx.x / EACH; chunk < chunks; chunk += THREADS / EACH)
                    sum[0] += work[(size_t)chunk * P * cols];
            }
            norms::column_sum<THREADS, EACH>(sum, scratch);
            if (writes) norms::put_gradient(a, column < cols ? 8 : 9, column % cols, before, sum);
        }
    }
};

// The same with separate blocks for columns and rows, without work; dy and x are read twice, once by each. The first
// blocks sum dgamma and dbeta, TX groups of V columns each; the others compute dx, THREADS / TPR rows each.
//
// STEPS = 1, for small tensors: all of them in one phase, so dx must not be dy. STEPS = 2, for rows of any length (a
// block a row, TPR = THREADS, nothing held in registers): columns in phase 0, rows in phase 1, and dx may be dy.
//
// PARTS, with STEPS = 1: only columns; or only rows, in registers or long, with dx allowed to be dy.
//
// ROWS and COLS are the numbers 0 and 1; V and N as for `LayerNormBwd`.
enum NormParts { NORM_BOTH = 0, NORM_COLUMNS = 1, NORM_ROWS = 2, NORM_LONG_ROWS = 3 };
template <class T, i64 ROWS, i64 COLS, int TPR, int TX, int THREADS_, int STEPS, bool ACCUMULATE, bool RMS = false,
    int V = vec_width<T>(COLS), int N = ceil_div(COLS / V, TPR), int PARTS = NORM_BOTH>
struct LayerNormBwdApart {
    using Slots = slots::layer_norm_bwd;
    static constexpr int PHASES = STEPS, THREADS = THREADS_, AT_ONCE = THREADS / TPR;
    // The number of rows of a column that a thread loads at the same time.
    static constexpr int U = PARTS == NORM_COLUMNS ? 4 : 2;
    static_assert(PARTS == NORM_BOTH || STEPS == 1, "a part is one phase");
    using Tile = norms::Tiles<ROWS, COLS, V, THREADS, TX, ROWS, 0>;
    static constexpr int TY = Tile::TY, ROW_BLOCKS = ceil_div(ROWS, AT_ONCE), P = norms::row_parameters(RMS);
    static constexpr long long WORK = 0;
    static constexpr int share(int phase, int across, int row_blocks) {
        return PARTS == NORM_COLUMNS ? across
            : PARTS != NORM_BOTH     ? row_blocks
            : STEPS == 1             ? across + row_blocks
            : phase == 0             ? across
                                     : row_blocks;
    }
    static constexpr int blocks(int phase) { return share(phase, Tile::ACROSS, ROW_BLOCKS); }
    DEV int blocks_for(const Args& a, int phase) {
        return share(phase, Tile::across_for(a), ceil_div(Number<ROWS, 0>(a), AT_ONCE));
    }
    static constexpr int smem(int) { return max_i(norms::column_floats(THREADS, TX, P * V), THREADS / 32 * 2) * 4; }
    struct Item {
        norms::BwdItem<T, V, NONE> row;
        float mean, rstd;
    };

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        float* scratch = (float*)smem;
        const int rows = (int)Number<ROWS, 0>(a);
        if constexpr (PARTS == NORM_COLUMNS) {
            columns(a, block, scratch);
        } else if constexpr (PARTS == NORM_LONG_ROWS) {
            norms::layer_norm_long_row<T, COLS, THREADS, V, RMS>(a, block, scratch);
        } else if constexpr (STEPS == 1) {
            const int across = PARTS == NORM_ROWS ? 0 : Tile::across_for(a);
            if (block < across) columns(a, block, scratch);
            else {
                const int row = (block - across) * AT_ONCE + threadIdx.x / TPR;
                float unused[P * N * V];
                norms::layer_norm_row<T, COLS, TPR, THREADS, false, N, V, RMS>(
                    a, min_i(row, rows - 1), row < rows, unused, scratch);
            }
        } else if constexpr (PHASE == 0) {
            columns(a, block, scratch);
        } else {
            norms::layer_norm_long_row<T, COLS, THREADS, V, RMS>(a, block, scratch);
        }
    }

    DEV void columns(const Args& a, int block, float* scratch) {
        const Tile t = Tile::of(a, block);
        const int rows = t.rows;
        const auto get = [&](int j) {
            Item item;
            item.row = norms::BwdItem<T, V, NONE>::of(a, t.first + (size_t)j * t.cols);
            item.mean = norms::row_mean<RMS>(a, j);
            item.rstd = a.at<float>(Slots::RSTD)[j];
            return item;
        };
        Item now[U];
        norms::get_batch<U, TY, Tile::template even<U>()>(now, t.ty, rows, get);
        // The sums for beta come first, if there are any.
        constexpr int GAMMA_SUMS = (P - 1) * V;
        float sum[P * V], mean[V], g[V], centred[V], dgamma[V], dbeta[V];
        const bool writes = t.ty == 0 && t.valid;
        if (writes) {
            norms::previous<ACCUMULATE>(a, Slots::DGAMMA, t.channel, dgamma);
            if constexpr (!RMS) norms::previous<ACCUMULATE>(a, Slots::DBETA, t.channel, dbeta);
        }
#pragma unroll
        for (int i = 0; i < P * V; ++i) sum[i] = 0.0f;
        norms::walk<U, TY, Tile::template even<U>()>(now, t.ty, rows, get, [&](int, const Item& item) {
#pragma unroll
            for (int i = 0; i < V; ++i) mean[i] = item.mean;
            item.row.take(a, mean, g, centred);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                if constexpr (!RMS) sum[i] += g[i];
                sum[GAMMA_SUMS + i] = fmaf(g[i], centred[i] * item.rstd, sum[GAMMA_SUMS + i]);
            }
        });
        norms::column_sum<THREADS, TX>(sum, scratch);
        if (!writes) return;
        norms::put_gradient(a, Slots::DGAMMA, t.channel, dgamma, sum + GAMMA_SUMS);
        if constexpr (!RMS) norms::put_gradient(a, Slots::DBETA, t.channel, dbeta, sum);
    }
};
