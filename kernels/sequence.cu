// Sequences: embeddings, sinusoidal positions, and the selection of one position.

// The row of a token in a table of VOCAB rows; negative if the token is out of range.
DEV int token_row(int token, i64 vocab) { return (u32)token < (u32)vocab ? token : -1; }

// y [ROWS, UNITS] (T): the row of weight [VOCAB, UNITS] (float) for each of tokens [ROWS] (int); NaN for a token out of
// range. If POSITIONS is not zero, row i % POSITIONS of position [POSITIONS, UNITS] (float) is added to row i before it
// is rounded. V divides UNITS. Overwrites; moves ROWS * (UNITS * (4 + sizeof(T)) + 4) bytes. POSITIONS is number 3.
template <class T, i64 ROWS, i64 VOCAB, i64 UNITS, int V, i64 POSITIONS = 0>
struct Embedding : RowGroups<ROWS, 0, UNITS, 2, V> {
    using Slots = slots::embedding;
    using Groups = RowGroups<ROWS, 0, UNITS, 2, V>;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 group = Groups::own_group(block);
        if (group >= Groups::groups_of(a)) return;
        const i64 units = Number<UNITS, 2>(a), across = units / V;
        const int row = token_row(a.at<int>(Slots::TOKENS)[group / across], Number<VOCAB, 1>(a));
        const int unit = (int)(group % across) * V;
        Vec<T, V> y;
#pragma unroll
        for (int i = 0; i < V; ++i) y.v[i] = narrow<T>(__int_as_float(0x7fffffff));
        if (row >= 0) {
            Vec<float, V> found = load<float, V>(a.at<float>(Slots::WEIGHT) + (i64)row * units + unit);
            if constexpr (POSITIONS != 0) {
                const i64 position = group / across % Number<POSITIONS, 3>(a);
                const Vec<float, V> more = load<float, V>(a.at<float>(Slots::POSITION) + position * units + unit);
#pragma unroll
                for (int i = 0; i < V; ++i) found.v[i] += more.v[i];
            }
#pragma unroll
            for (int i = 0; i < V; ++i) y.v[i] = narrow<T>(found.v[i]);
        }
        store(a.at<T>(Slots::Y) + group * V, y);
    }
};

// dweight [VOCAB, UNITS] (float) = or += the sum of the rows of dy [ROWS, UNITS] (T) whose token is that row.
// Deterministic and without atomics: a block has one row of the table and up to TX * V of its units. It scans all
// tokens, 2,048 at a time, and lists those that are equal to its row; LANES groups of threads share the list, each with
// several rows in flight, and their sums are added in order. Reads the tokens once a block, dy once, and writes the
// whole table. ROWS, VOCAB and UNITS are the numbers 0 to 2.
template <class T, i64 ROWS, i64 VOCAB, i64 UNITS, int V, bool ACCUMULATE> struct EmbeddingBwd {
    using Slots = slots::embedding_bwd;
    static constexpr int PHASES = 1, THREADS = 256, WARPS = THREADS / 32, LOOKS = 8, CHUNK = THREADS * LOOKS;
    static constexpr int FLIGHT = 4;
    static constexpr i64 WORK = 0;
    // Threads across a strip of rows of this many groups, and the strips.
    static constexpr int across(int groups) { return min_i(groups, THREADS); }
    static constexpr int strips(int groups) { return ceil_div(groups, across(groups)); }
    static constexpr int blocks(int) { return (int)VOCAB * strips((int)(UNITS / V)); }
    DEV int blocks_for(const Args& a, int) {
        return (int)Number<VOCAB, 1>(a) * strips((int)(Number<UNITS, 2>(a) / V));
    }
    static constexpr int smem(int) {
        const int tx = is_fixed(UNITS) ? across((int)(UNITS / V)) : THREADS;
        return 4 * max_i(CHUNK + WARPS, THREADS / tx * tx * V);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const int rows = (int)Number<ROWS, 0>(a), units = (int)Number<UNITS, 2>(a), groups = units / V;
        const int tx = across(groups), lanes = THREADS / tx, count = strips(groups);
        const int own = block / count, t = threadIdx.x, lane = t / tx, group = block % count * tx + t % tx;
        const bool adds = lane < lanes && group < groups;
        int *listed = (int*)smem, *counts = listed + CHUNK;
        const int* tokens = a.at<int>(Slots::TOKENS);
        const T* dy = a.at<T>(Slots::DY) + (i64)group * V;
        float sum[V];
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = 0.0f;
#pragma unroll 1
        for (int base = 0; base < rows; base += CHUNK) {
            u32 named = 0;
#pragma unroll
            for (int j = 0; j < LOOKS; ++j) {
                const int at = base + t * LOOKS + j;
                named |= at < rows && tokens[at] == own ? 1u << j : 0u;
            }
            // After this barrier the previous contents of the list are no longer needed.
            if (__syncthreads_or(named) == 0) continue;
            const int found = __popc(named);
            int before = found, all = 0;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, before, step);
                before += t % 32 >= step ? other : 0;
            }
            if (t % 32 == 31) counts[t / 32] = before;
            __syncthreads();
            before -= found;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                before += w < t / 32 ? counts[w] : 0;
                all += counts[w];
            }
            for (; named != 0; named &= named - 1) listed[before++] = base + t * LOOKS + __ffs(named) - 1;
            __syncthreads();
            if (adds) {
#pragma unroll 1
                for (int begin = lane; begin < all; begin += FLIGHT * lanes) {
                    Vec<T, V> row[FLIGHT];
#pragma unroll
                    for (int j = 0; j < FLIGHT; ++j)
                        if (begin + j * lanes < all) row[j] = load<T, V>(dy + (i64)listed[begin + j * lanes] * units);
#pragma unroll
                    for (int j = 0; j < FLIGHT; ++j) {
                        if (begin + j * lanes >= all) break;
#pragma unroll
                        for (int i = 0; i < V; ++i) sum[i] += to_float(row[j].v[i]);
                    }
                }
            }
            __syncthreads();
        }
        __syncthreads();
        float* partial = (float*)smem;
        if (lanes > 1) {
            if (lane < lanes) {
#pragma unroll
                for (int i = 0; i < V; ++i) partial[t * V + i] = sum[i];
            }
            __syncthreads();
        }
        if (lane != 0 || !adds) return;
        for (int l = 1; l < lanes; ++l) {
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += partial[(l * tx + t) * V + i];
        }
        float* to = a.at<float>(Slots::DWEIGHT) + (i64)own * units + group * V;
#pragma unroll
        for (int i = 0; i < V; ++i) to[i] = ACCUMULATE ? to[i] + sum[i] : sum[i];
    }
};

// The same for tables of many rows: a block has EACH rows, so that the tokens are scanned VOCAB / EACH times. It lists
// those of 1,024 tokens that are one of its rows, and adds their rows of dy in the order of the tokens to sums in
// shared memory; a thread handles groups of V units of all rows. Deterministic and without atomics. ROWS, VOCAB and
// UNITS are the numbers 0 to 2; a general member has shared memory for MOST sums.
template <class T, i64 ROWS, i64 VOCAB, i64 UNITS, int V, int EACH, bool ACCUMULATE, int MOST = EACH * (int)UNITS>
struct EmbeddingBwdRows {
    using Slots = slots::embedding_bwd;
    static constexpr int PHASES = 1, THREADS = 256, WARPS = THREADS / 32, LOOKS = 4, CHUNK = THREADS * LOOKS;
    static constexpr int FLIGHT = 8;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return ceil_div(VOCAB, EACH); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(Number<VOCAB, 1>(a), EACH); }
    static constexpr int smem(int) { return 4 * (MOST + CHUNK + WARPS); }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const int all_rows = (int)Number<ROWS, 0>(a), units = (int)Number<UNITS, 2>(a), groups = units / V;
        float* sums = (float*)smem;
        int *listed = (int*)(sums + MOST), *counts = listed + CHUNK;
        const int first = block * EACH, rows = min_i(EACH, (int)Number<VOCAB, 1>(a) - first);
        const int t = threadIdx.x, lane = t % 32, warp = t / 32;
        const int* tokens = a.at<int>(Slots::TOKENS);
        for (int i = t; i < EACH * units; i += THREADS) sums[i] = 0.0f;
        Vec<int, LOOKS> ahead = some_tokens(tokens, t * LOOKS, all_rows);
#pragma unroll 1
        for (int base = 0; base < all_rows; base += CHUNK) {
            u32 own[LOOKS];
            int found = 0;
#pragma unroll
            for (int j = 0; j < LOOKS; ++j) {
                own[j] = (u32)ahead.v[j] - (u32)first;
                found += own[j] < (u32)rows ? 1 : 0;
            }
            ahead = some_tokens(tokens, base + CHUNK + t * LOOKS, all_rows);
            // After this barrier the previous contents of the list are no longer needed.
            if (__syncthreads_or(found) == 0) continue;
            int before = found, all = 0;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, before, step);
                before += lane >= step ? other : 0;
            }
            if (lane == 31) counts[warp] = before;
            __syncthreads();
            before -= found;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                before += w < warp ? counts[w] : 0;
                all += counts[w];
            }
#pragma unroll
            for (int j = 0; j < LOOKS; ++j)
                if (own[j] < (u32)rows) listed[before++] = (t * LOOKS + j) * EACH + (int)own[j];
            __syncthreads();
            for (int group = t; group < groups; group += THREADS)
                add(a.at<T>(Slots::DY) + (i64)base * units + group * V, units, sums + group * V, listed, all);
        }
        __syncthreads();
        finish(a.at<float>(Slots::DWEIGHT) + (i64)first * units, sums, rows * units);
    }

    // The tokens from a place on; -1, which no row has, beyond the last.
    DEV Vec<int, LOOKS> some_tokens(const int* tokens, int at, int all) {
        if (at + LOOKS <= all) return load<int, LOOKS>(tokens + at);
        Vec<int, LOOKS> found;
#pragma unroll
        for (int j = 0; j < LOOKS; ++j) found.v[j] = at + j < all ? tokens[at + j] : -1;
        return found;
    }
    // Stores or adds so many sums, in groups of four with several loads in flight.
    DEV void finish(float* to, const float* sums, int count) {
        constexpr int GROUPS = 6;
        const int whole = count / 4 * 4;
#pragma unroll 1
        for (int base = threadIdx.x * 4; base < whole; base += GROUPS * THREADS * 4) {
            Vec<float, 4> old[GROUPS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                const int i = base + g * THREADS * 4;
                if (ACCUMULATE && i < whole) old[g] = load<float, 4>(to + i);
            }
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                const int i = base + g * THREADS * 4;
                if (i >= whole) break;
                Vec<float, 4> sum = load<float, 4>(sums + i);
#pragma unroll
                for (int j = 0; j < 4; ++j) sum.v[j] = ACCUMULATE ? old[g].v[j] + sum.v[j] : sum.v[j];
                store<float, 4>(to + i, sum);
            }
        }
        const int last = whole + threadIdx.x;
        if (last < count) to[last] = ACCUMULATE ? to[last] + sums[last] : sums[last];
    }

    // Adds the listed rows from `dy` on to `sums`, with several loads in flight.
    DEV void add(const T* dy, int units, float* sums, const int* listed, int all) {
#pragma unroll 1
        for (int begin = 0; begin < all; begin += FLIGHT) {
            Vec<T, V> row[FLIGHT];
#pragma unroll
            for (int j = 0; j < FLIGHT; ++j)
                if (begin + j < all) row[j] = load<T, V>(dy + (i64)(listed[begin + j] / EACH) * units);
#pragma unroll
            for (int j = 0; j < FLIGHT; ++j) {
                if (begin + j >= all) break;
                float* to = sums + listed[begin + j] % EACH * units;
#pragma unroll
                for (int i = 0; i < V; ++i) to[i] += to_float(row[j].v[i]);
            }
        }
    }
};

// y [N, POSITIONS, COLS] = x and, at position t in columns 2 i and 2 i + 1, the sine and the cosine of
// t / 10000^(2 i / COLS), elements of T. A thread handles one position and one pair of columns of up to EACH samples.
// The angle is computed in double, because t may be large. N, POSITIONS and COLS are the numbers 0 to 2. Overwrites, in
// place allowed; moves 2 * N * POSITIONS * COLS * sizeof(T) bytes.
template <class T, i64 N, i64 POSITIONS, i64 COLS> struct AddSinusoids : OnePhase<128> {
    using Slots = slots::add_sinusoids;
    static constexpr int EACH = 8;
    // Places of a sample, and the blocks that handle them.
    static constexpr i64 places(i64 positions, i64 cols) { return positions * ((cols + 1) / 2); }
    static constexpr int across(i64 positions, i64 cols) { return ceil_div(places(positions, cols), THREADS); }
    static constexpr int blocks(int) { return across(POSITIONS, COLS) * ceil_div(N, EACH); }
    DEV int blocks_for(const Args& a, int) {
        return across(Number<POSITIONS, 1>(a), Number<COLS, 2>(a)) * ceil_div(Number<N, 0>(a), EACH);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const int samples = (int)Number<N, 0>(a), positions = (int)Number<POSITIONS, 1>(a);
        const int cols = (int)Number<COLS, 2>(a), pairs = (cols + 1) / 2, blocks_across = across(positions, cols);
        const i64 place = (i64)(block % blocks_across) * THREADS + threadIdx.x;
        if (place >= places(positions, cols)) return;
        const int position = (int)(place / pairs), col = (int)(place % pairs) * 2;
        // ln 10000.
        double sine, cosine;
        sincos(position * exp(-9.210340371976184 * col / cols), &sine, &cosine);
        const int first = block / blocks_across * EACH;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (first + i >= samples) return;
            const i64 at = ((i64)(first + i) * positions + position) * cols + col;
            const T* x = a.at<T>(Slots::X) + at;
            T* y = a.at<T>(Slots::Y) + at;
            y[0] = narrow<T>(to_float(x[0]) + (float)sine);
            if (cols % 2 == 0 || col + 1 < cols) y[1] = narrow<T>(to_float(x[1]) + (float)cosine);
        }
    }
};

// y [N, COLS]: position AT of each sample of x [N, POSITIONS, COLS], elements of T. V divides COLS. Overwrites; moves
// 2 * N * COLS * sizeof(T) bytes.
template <class T, i64 N, i64 POSITIONS, i64 COLS, i64 AT, int V>
struct Take : RowGroups<N, 0, COLS, 2, V> {
    using Slots = slots::take;
    using Groups = RowGroups<N, 0, COLS, 2, V>;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 cols = Number<COLS, 2>(a), across = cols / V;
        const i64 group = Groups::own_group(block), sample = group / across;
        if (group >= Groups::groups_of(a)) return;
        const i64 from = (sample * Number<POSITIONS, 1>(a) + Number<AT, 3>(a)) * cols + group % across * V;
        store(a.at<T>(Slots::Y) + group * V, load<T, V>(a.at<T>(Slots::X) + from));
    }
};

// dx [N, POSITIONS, COLS]: dy [N, COLS] at position AT, zero at the others; elements of T. V divides COLS. Overwrites;
// moves N * (POSITIONS + 1) * COLS * sizeof(T) bytes.
template <class T, i64 N, i64 POSITIONS, i64 COLS, i64 AT, int V> struct TakeBwd {
    using Slots = slots::take_bwd;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0, GROUPS = N * POSITIONS * (COLS / V);
    static constexpr int blocks(int) { return ceil_div(GROUPS, THREADS); }
    DEV i64 groups_of(const Args& a) {
        return Number<N, 0>(a) * Number<POSITIONS, 1>(a) * (Number<COLS, 2>(a) / V);
    }
    DEV int blocks_for(const Args& a, int) { return ceil_div(groups_of(a), THREADS); }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 cols = Number<COLS, 2>(a), across = cols / V, positions = Number<POSITIONS, 1>(a);
        const i64 group = (i64)block * THREADS + threadIdx.x, row = group / across;
        if (group >= groups_of(a)) return;
        const i64 sample = row / positions, col = group % across * V;
        Vec<T, V> dx{};
        if (row % positions == Number<AT, 3>(a)) dx = load<T, V>(a.at<T>(Slots::DY) + sample * cols + col);
        store(a.at<T>(Slots::DX) + group * V, dx);
    }
};
