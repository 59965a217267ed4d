// Elementwise operations, transposes, column sums, dropout, and the scalars of a step.

// ---------------------------------------- flat arrays

// LEN (number 0) elements in groups of V, of 16 bytes. Neighbouring threads handle neighbouring groups. A thread
// handles up to four groups with a stride of one block and issues all its loads before its first store, so that large
// arrays keep enough bytes in flight, while small ones are spread over as many multiprocessors as they have blocks. The
// first threads of the last block handle the last LEN % V elements one by one. An operation defines how N neighbouring
// elements from `at` on are read and written, with N either V or 1; it may work in place.
template <class Op, i64 LEN, int V> struct Elementwise {
    using Len = Number<LEN, 0>;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0, MANY = 1 << 20, SOME = 1 << 18;
    static constexpr int EACH = LEN == LARGE || LEN / V >= MANY ? 4 : LEN / V >= SOME ? 2 : 1;
    // Whether every thread has all its groups; an array of less than one group has none.
    static constexpr bool EVEN = LEN / V > 0 && LEN / V % (THREADS * EACH) == 0;
    // Whether there may be elements after the last whole group.
    static constexpr bool UNEVEN = V > 1 && (!Len::FIXED || LEN % V != 0);
    static constexpr int blocks_of(i64 groups) { return max_i(1, ceil_div(groups, THREADS * EACH)); }
    static constexpr int blocks(int) { return blocks_of(LEN / V); }
    DEV int blocks_for(const Args& a, int) { return blocks_of(Len(a) / V); }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const Len len(a);
        const i64 groups = len / V;
        typename Op::template In<V> in[EACH];
        const i64 first = (i64)block * (THREADS * EACH) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (EVEN || first + i * THREADS < groups) in[i] = Op::template read<V>(a, (first + i * THREADS) * V);
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (EVEN || first + i * THREADS < groups) Op::template write<V>(a, (first + i * THREADS) * V, in[i]);
        if constexpr (UNEVEN)
            if (block == blocks_of(groups) - 1 && threadIdx.x < (int)(len % V)) {
                const i64 at = groups * V + threadIdx.x;
                Op::template write<1>(a, at, Op::template read<1>(a, at));
            }
    }
};

template <class T> constexpr int WIDE_V = 16 / (int)sizeof(T);

template <class T, int N> struct TwoInputs { Vec<T, N> a, b; };

// N floats from `at`, by accesses of up to 16 bytes.
template <int N> DEV Vec<float, N> load_floats(const float* at) {
    if constexpr (N <= 4) return load<float, N>(at);
    else {
        Vec<float, N> out;
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const Vec<float, 4> part = load<float, 4>(at + i);
#pragma unroll
            for (int j = 0; j < 4; ++j) out.v[i + j] = part.v[j];
        }
        return out;
    }
}

// y = 0. Overwrites LEN elements of T; moves LEN * sizeof(T) bytes. y may be a part of a value that begins at any
// element.
template <class T, i64 LEN> struct Fill : Elementwise<Fill<T, LEN>, LEN, WIDE_V<T>> {
    using Slots = slots::fill;
    template <int N> struct In {};
    template <int N> DEV In<N> read(const Args&, i64) { return {}; }
    template <int N> DEV void write(const Args& a, i64 at, In<N>) {
        T* const y = a.at<T>(Slots::Y) + at;
        if ((u64)y % sizeof(Vec<T, N>) == 0) {
            store(y, Vec<T, N>{});
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) y[i] = T{};
        }
    }
};

// y = x: the transpose of samples of one row or one column. Overwrites; moves 2 * LEN * sizeof(T) bytes.
template <class T, i64 LEN> struct Copy : Elementwise<Copy<T, LEN>, LEN, WIDE_V<T>> {
    using Slots = slots::transpose;
    template <int N> using In = Vec<T, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) { return load<T, N>(a.at<T>(Slots::X) + at); }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& x) { store(a.at<T>(Slots::Y) + at, x); }
};

// y = (T) x, rounded to nearest even, from floats. Overwrites; moves LEN * (4 + sizeof(T)) bytes.
template <class T, i64 LEN> struct Cast : Elementwise<Cast<T, LEN>, LEN, WIDE_V<T>> {
    using Slots = slots::cast;
    template <int N> using In = Vec<float, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) { return load_floats<N>(a.at<float>(Slots::X) + at); }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& x) {
        Vec<T, N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) y.v[i] = narrow<T>(x.v[i]);
        store(a.at<T>(Slots::Y) + at, y);
    }
};

// y = x as floats, from T. Overwrites; moves LEN * (4 + sizeof(T)) bytes.
template <class T, i64 LEN> struct Widen : Elementwise<Widen<T, LEN>, LEN, WIDE_V<T>> {
    using Slots = slots::cast;
    template <int N> using In = Vec<T, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) { return load<T, N>(a.at<T>(Slots::X) + at); }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& x) {
        if constexpr (N <= 4) {
            Vec<float, N> y;
#pragma unroll
            for (int i = 0; i < N; ++i) y.v[i] = to_float(x.v[i]);
            store(a.at<float>(Slots::Y) + at, y);
        } else {
#pragma unroll
            for (int i = 0; i < N; i += 4) {
                Vec<float, 4> y;
#pragma unroll
                for (int j = 0; j < 4; ++j) y.v[j] = to_float(x.v[i + j]);
                store(a.at<float>(Slots::Y) + at + i, y);
            }
        }
    }
};

// y = f(x). Overwrites, in place allowed; moves 2 * LEN * sizeof(T) bytes.
template <class T, int FUNC, i64 LEN> struct Act : Elementwise<Act<T, FUNC, LEN>, LEN, WIDE_V<T>> {
    using Slots = slots::act;
    template <int N> using In = Vec<T, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) { return load<T, N>(a.at<T>(Slots::X) + at); }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& x) {
        Vec<T, N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) y.v[i] = narrow<T>(activate<FUNC, T>(to_float(x.v[i])));
        store(a.at<T>(Slots::Y) + at, y);
    }
};

// Combines two values of LEN elements, in the slots A and B, into the slot Y; the type `Op` defines how it combines two
// floats. Overwrites, y may share the memory of a or b; moves 3 * LEN * sizeof(T) bytes.
template <class Op, class T, i64 LEN, int A, int B, int Y> struct Pairwise : Elementwise<Op, LEN, WIDE_V<T>> {
    template <int N> using In = TwoInputs<T, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) {
        return {load<T, N>(a.at<T>(A) + at), load<T, N>(a.at<T>(B) + at)};
    }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& in) {
        Vec<T, N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) y.v[i] = narrow<T>(Op::combine(to_float(in.a.v[i]), to_float(in.b.v[i])));
        store(a.at<T>(Y) + at, y);
    }
};

// dx = dy * f'(saved).
template <class T, int FUNC, i64 LEN>
struct ActBwd
    : Pairwise<ActBwd<T, FUNC, LEN>, T, LEN, slots::act_bwd::DY, slots::act_bwd::SAVED, slots::act_bwd::DX> {
    DEV float combine(float dy, float saved) { return dy * activate_grad<FUNC, T>(saved); }
};

// y = a + b.
template <class T, i64 LEN>
struct Add : Pairwise<Add<T, LEN>, T, LEN, slots::add::A, slots::add::B, slots::add::Y> {
    DEV float combine(float a, float b) { return a + b; }
};

// y = a * b.
template <class T, i64 LEN>
struct Multiply : Pairwise<Multiply<T, LEN>, T, LEN, slots::multiply::A, slots::multiply::B, slots::multiply::Y> {
    DEV float combine(float a, float b) { return a * b; }
};

// y = f(a + b), or (a + b) * f'(saved). Overwrites, y may share the memory of a or b; moves 3 or 4 * LEN * sizeof(T)
// bytes.
template <class T, int N> struct ThreeInputs { Vec<T, N> a, b, saved; };
template <class T, int ACT, int ACT_GRAD, i64 LEN>
struct AddAct : Elementwise<AddAct<T, ACT, ACT_GRAD, LEN>, LEN, WIDE_V<T>> {
    using Slots = slots::add_act;
    template <int N> using In = ThreeInputs<T, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) {
        In<N> in;
        in.a = load<T, N>(a.at<T>(Slots::A) + at);
        in.b = load<T, N>(a.at<T>(Slots::B) + at);
        if constexpr (ACT_GRAD != NONE) in.saved = load<T, N>(a.at<T>(Slots::SAVED) + at);
        return in;
    }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& in) {
        Vec<T, N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            float v = activate<ACT, T>(Add<T, LEN>::combine(to_float(in.a.v[i]), to_float(in.b.v[i])));
            if constexpr (ACT_GRAD != NONE) v *= activate_grad<ACT_GRAD, T>(to_float(in.saved.v[i]));
            y.v[i] = narrow<T>(v);
        }
        store(a.at<T>(Slots::Y) + at, y);
    }
};

// y = factor * x. Overwrites, in place allowed; moves 2 * LEN * sizeof(T) bytes. FACTOR (number 1) holds the bits of
// the factor as a float.
template <class T, i64 LEN, i64 FACTOR> struct Scale : Elementwise<Scale<T, LEN, FACTOR>, LEN, WIDE_V<T>> {
    using Slots = slots::scale;
    template <int N> using In = Vec<T, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) { return load<T, N>(a.at<T>(Slots::X) + at); }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& x) {
        const float factor = __uint_as_float((u32)Number<FACTOR, 1>(a));
        Vec<T, N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) y.v[i] = narrow<T>(to_float(x.v[i]) * factor);
        store(a.at<T>(Slots::Y) + at, y);
    }
};

// y [ROWS, COLS] (COLS is number 1) = x + bias [COLS], with x and y of T and the bias of float. Overwrites, in place
// allowed; moves 2 * ROWS * COLS * sizeof(T) bytes. The matrix is processed as one array, so that x and y are moved in
// vectors for every COLS; the bias is loaded in vectors if COLS is a multiple of the vector's length.
template <class T, i64 ROWS, i64 COLS>
struct BiasAdd : Elementwise<BiasAdd<T, ROWS, COLS>, fixed_product(ROWS, COLS), WIDE_V<T>> {
    using Slots = slots::bias_add;
    using Cols = Number<COLS, 1>;
    static constexpr i64 LEN = fixed_product(ROWS, COLS);
    template <int N> struct In {
        Vec<T, N> x;
        Vec<float, N> bias;
    };
    template <int N> DEV In<N> read(const Args& a, i64 at) {
        In<N> in;
        in.x = load<T, N>(a.at<T>(Slots::X) + at);
        // A 32-bit remainder costs a fraction of a 64-bit one.
        const Cols given(a);
        const int cols = (int)given;
        int col = Number<LEN, 0>(a) <= 0xffffffffll ? (int)((u32)at % (u32)cols) : (int)(at % cols);
        const float* bias = a.at<float>(Slots::BIAS);
        if constexpr (Cols::FIXED && COLS % N == 0) in.bias = load_floats<N>(bias + col);
        else {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                in.bias.v[i] = bias[col];
                col = col + 1 == cols ? 0 : col + 1;
            }
        }
        return in;
    }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& in) {
        Vec<T, N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) y.v[i] = narrow<T>(to_float(in.x.v[i]) + in.bias.v[i]);
        store(a.at<T>(Slots::Y) + at, y);
    }
};

// ---------------------------------------- column sums

// Adds V columns of every `step`-th row from `first` up to `end` to `sum`, in rising order. Rows have `cols` elements.
// FLIGHT loads are in flight before the first one is used.
template <int FLIGHT, class T, int V>
DEV void add_rows(float (&sum)[V], const T* from, int cols, int first, int end, int step) {
#pragma unroll 1
    for (; first < end; first += FLIGHT * step) {
        Vec<T, V> rows[FLIGHT];
#pragma unroll
        for (int j = 0; j < FLIGHT; ++j)
            if (first + j * step < end) rows[j] = load<T, V>(from + (u64)(u32)(first + j * step) * (u32)cols);
#pragma unroll
        for (int j = 0; j < FLIGHT; ++j) {
            if (first + j * step >= end) continue;
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += to_float(rows[j].v[i]);
        }
    }
}

// db [COLS] (float) = or += the sum over the rows of dy [ROWS, COLS] (T). Deterministic: every sum has a fixed order.
//
// A block sums a strip of up to 128 bytes of columns: TX neighbouring threads read neighbouring vectors of a row and
// LANES rows are read at once; the sums of the lanes are then added through shared memory. With CHUNKS = 1 a block sums
// all rows and writes db. Otherwise it sums one of CHUNKS ranges of rows and writes its sums to work [CHUNKS, COLS];
// phase 1 adds them, eight columns for each block. Vectors are as wide as COLS allows; a general member is compiled for
// this width (V_). Columns from FROM up to TO are zero. ROWS, COLS, CHUNKS, FROM and TO are the numbers 0 to 4. Moves
// ROWS * COLS * sizeof(T) bytes, and 8 * CHUNKS * COLS more if CHUNKS > 1.
template <class T, i64 ROWS, i64 COLS, bool ACCUMULATE, i64 CHUNKS, int V_ = vec_width<T>(COLS), i64 FROM = 0,
    i64 TO = 0>
struct BiasGrad {
    using Slots = slots::bias_grad;
    using Rows = Size<ROWS, 0>;
    using Cols = Size<COLS, 1>;
    using Chunks = Size<CHUNKS, 2>;
    static constexpr int PHASES = CHUNKS == 1 ? 1 : 2, THREADS = 256, V = V_,
                         LIMIT = min_i(32, 128 / (V * (int)sizeof(T)));
    static constexpr bool FIXED = Rows::FIXED && Cols::FIXED && Chunks::FIXED;
    static constexpr i64 WORK = CHUNKS == 1 ? 0 : 4ll * CHUNKS * COLS;
    // The number of threads across a strip, for rows of this many vectors: the one that leaves the fewest threads idle
    // in the last strip.
    static constexpr int across(int groups) {
        if (groups <= LIMIT) return groups;
        int best = LIMIT;
        for (int x = LIMIT - 1; 2 * x > LIMIT; --x)
            if (ceil_div(groups, x) * x < ceil_div(groups, best) * best) best = x;
        return best;
    }
    // The same for a number that is not known to the compiler, with constant divisors.
    DEV int across_any(int groups) {
        int best = LIMIT, least = divide(groups + LIMIT - 1, LIMIT) * LIMIT;
        if (groups <= LIMIT) return groups;
        if (least == groups) return LIMIT;
#pragma unroll
        for (int x = LIMIT - 1; 2 * x > LIMIT; --x) {
            const int filled = divide(groups + x - 1, x) * x;
            if (filled < least) best = x, least = filled;
        }
        return best;
    }
    static constexpr int strips(int cols) { return ceil_div(cols / V, across(cols / V)); }
    // Threads that share the final sum of one column, if a strip has TX vectors.
    static constexpr int share(int tx) { return min_i(THREADS / (tx * V), THREADS / tx); }
    static constexpr i64 chunk_rows(i64 rows, i64 chunks) { return (rows + chunks - 1) / chunks; }
    static constexpr int steps(i64 rows, i64 chunks, int lanes) { return ceil_div(chunk_rows(rows, chunks), lanes); }
    // The number of loads in flight of a specialised member.
    static constexpr int unroll() {
        return min_i(8, steps(ROWS, CHUNKS, THREADS / across((int)(COLS / V))));
    }
    static constexpr int blocks_of(int cols, int chunks, int phase) {
        return phase == 0 ? strips(cols) * chunks : ceil_div(cols, 8);
    }
    static constexpr int blocks(int phase) { return blocks_of((int)COLS, (int)CHUNKS, phase); }
    DEV int blocks_for(const Args& a, int phase) {
        const int cols = (int)Cols(a), chunks = (int)Chunks(a);
        if constexpr (FIXED) return blocks_of(cols, chunks, phase);
        if (phase != 0) return divide(cols + 7, 8);
        const int groups = divide(cols, V), tx = across_any(groups);
        return divide(groups + tx - 1, tx) * chunks;
    }
    static constexpr int smem(int phase) {
        if (phase != 0) return 4 * 8 * 8;
        const int tx = Cols::FIXED ? across((int)(COLS / V)) : 0;
        return Cols::FIXED ? 4 * (THREADS / tx + share(tx)) * tx * V : 4 * (THREADS * V + THREADS);
    }

    DEV void finish(const Args& a, int col, float sum) {
        if constexpr (FROM < TO || !is_fixed(FROM))
            sum = col >= (int)Number<FROM, 3>(a) && col < (int)Number<TO, 4>(a) ? 0.0f : sum;
        float* db = a.at<float>(Slots::DB) + col;
        *db = ACCUMULATE ? *db + sum : sum;
    }
    // Adds up the lanes of a strip of columns, and writes the sums of its chunk of rows.
    template <class Across>
    DEV void store_strip(const Args& a, float* partial, const float (&sum)[V], int lane, int lanes, const Across& tx,
        int shared_by, int cols, int strip, int chunk) {
        const int t = threadIdx.x, width = (int)tx * V;
        const float* shared_sums = share_lanes(partial, sum, lane, lanes, tx, shared_by);
        const int col = strip * width + t;
        if (t < width && col < cols) {
            const float s = total_of_shares(shared_sums, t, width, shared_by);
            if constexpr (CHUNKS == 1) finish(a, col, s);
            else a.at<float>(Slots::WORK)[(i64)chunk * cols + col] = s;
        }
    }
    // Phase 0 of a general member: the same sums in the same order, with few divisions, and all loads of a round in
    // flight before the first one is used.
    DEV void sum_any_rows(const Args& a, int block, float* partial, int rows, int cols, int chunks) {
        constexpr int FLIGHT = 8;
        const int groups = divide(cols, V), t = threadIdx.x;
        const SmallDivisor tx(across_any(groups));
        const int lanes = quotient(THREADS, tx), shared_by = divide(lanes, V), lane = quotient(t, tx);
        int strip = block, chunk = 0, each_rows = rows;
        if constexpr (CHUNKS != 1) {
            const int count = divide(groups + tx - 1, tx);
            chunk = divide(block, count), strip = block - chunk * count, each_rows = divide(rows + chunks - 1, chunks);
        }
        const int group = strip * tx + t - lane * tx, end = min((chunk + 1) * each_rows, rows);
        float sum[V];
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = 0.0f;
        if (lane < lanes && group < groups) {
            const T* const dy = a.at<T>(Slots::DY) + (i64)group * V;
            add_rows<FLIGHT>(sum, dy, cols, chunk * each_rows + lane, end, lanes);
        }
        store_strip(a, partial, sum, lane, lanes, tx, shared_by, cols, strip, chunk);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Rows rows(a);
        const Cols given_cols(a);
        const Chunks given_chunks(a);
        const int cols = (int)given_cols, chunks = (int)given_chunks;
        const int t = threadIdx.x;
        float* partial = (float*)smem;
        if constexpr (PHASE == 0 && !FIXED) {
            sum_any_rows(a, block, partial, (int)rows, cols, chunks);
        } else if constexpr (PHASE == 0) {
            const int groups = cols / V, tx = across(groups), lanes = THREADS / tx;
            const int shared_by = share(tx), count = strips(cols), each_steps = steps(rows, chunks, lanes);
            const i64 each_rows = chunk_rows(rows, chunks);
            const int strip = block % count, chunk = block / count, lane = t / tx, group = strip * tx + t % tx;
            const i64 start = chunk * each_rows, end = start + each_rows < rows ? start + each_rows : rows;
            float sum[V];
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] = 0.0f;
            if (lane < lanes && group < groups) {
                const T* dy = a.at<T>(Slots::DY) + (i64)group * V;
#pragma unroll unroll()
                for (int step = 0; step < each_steps; ++step) {
                    const i64 row = start + step * lanes + lane;
                    if (row < end) {
                        const Vec<T, V> v = load<T, V>(dy + row * cols);
#pragma unroll
                        for (int i = 0; i < V; ++i) sum[i] += to_float(v.v[i]);
                    }
                }
            }
            store_strip(a, partial, sum, lane, lanes, tx, shared_by, cols, strip, chunk);
        } else {
            // Four chunks of eight columns in each warp.
            const int col = block * 8 + t % 8;
            float s = 0.0f;
            if (col < cols) {
                const float* from = a.at<float>(Slots::WORK) + col;
#pragma unroll 8
                for (int i = t / 8; i < chunks; i += THREADS / 8) s += from[(i64)i * cols];
            }
            add_chunks_of_warp(partial, s);
            if (t < 8 && col < cols) finish(a, col, total_of_warps<THREADS / 32>(partial, t));
        }
    }
};

// ---------------------------------------- transpose

// y [N, COLS, ROWS] = x [N, ROWS, COLS], elements of T. Overwrites; moves 2 * N * ROWS * COLS * sizeof(T) bytes.
//
// A block of 256 threads moves one tile through shared memory, so that both sides are read and written along their
// rows, four bytes at a time if rows allow. Small samples are one tile; thin ones are divided along their long side
// only, so that short rows stay contiguous in memory. The rows of a tile are padded so that columns are in different
// banks.
//
// N, ROWS and COLS are the numbers 0 to 2. A general member is compiled for how many elements an access reads and
// writes, and for whether there are a million elements or more.
template <class T, i64 N, i64 ROWS, i64 COLS, int RV = COLS % (4 / (int)sizeof(T)) == 0 ? 4 / (int)sizeof(T) : 1,
    int WV = ROWS % (4 / (int)sizeof(T)) == 0 ? 4 / (int)sizeof(T) : 1, bool LARGE_ = N * ROWS * COLS >= 1 << 20>
struct Transpose {
    using Slots = slots::transpose;
    static constexpr bool FIXED = is_fixed(N);
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0;
    static constexpr int CAPACITY = LARGE_ ? 4096 : 1024, SIDE = LARGE_ ? 64 : 32, PAIR = 4 / (int)sizeof(T);
    // The length of a tile along a side of `own`, where the other side is `other`.
    static constexpr int along(int own, int other) {
        return (i64)own * other <= CAPACITY || own <= SIDE ? own
            : other <= SIDE                                ? min_i(own, CAPACITY / other / 32 * 32)
                                                           : SIDE;
    }
    static constexpr int pitch_of(int tc) {
        return PAIR == 1 ? tc | 1 : (tc + 1) / 2 % 2 == 1 ? (tc + 1) / 2 * 2 : (tc + 1) / 2 * 2 + 2;
    }
    static constexpr int blocks_of(i64 n, int rows, int cols) {
        return (int)n * ceil_div(rows, along(rows, cols)) * ceil_div(cols, along(cols, rows));
    }
    static constexpr int TR = along((int)ROWS, (int)COLS), TC = along((int)COLS, (int)ROWS);
    // The largest number of accesses of a thread in a tile.
    static constexpr int READS = ceil_div(FIXED ? TR * (TC / RV) : CAPACITY / RV, THREADS),
                         WRITES = ceil_div(FIXED ? TC * (TR / WV) : CAPACITY / WV, THREADS);
    static_assert(!FIXED || (TC % RV == 0 && TR % WV == 0), "tiles are cut at vectors");
    static constexpr int blocks(int) { return blocks_of(N, (int)ROWS, (int)COLS); }
    DEV int blocks_for(const Args& a, int) {
        const Number<N, 0> n(a);
        const Number<ROWS, 1> rows(a);
        const Number<COLS, 2> cols(a);
        return blocks_of(n, (int)rows, (int)cols);
    }
    // Padding makes rows twice as long at most.
    static constexpr int smem(int) {
        return (FIXED ? TR * pitch_of(TC) : 2 * CAPACITY) * (int)sizeof(T);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Number<ROWS, 1> given_rows(a);
        const Number<COLS, 2> given_cols(a);
        const int rows = (int)given_rows, cols = (int)given_cols, tr = along(rows, cols), tc = along(cols, rows);
        const int down = ceil_div(rows, tr), over = ceil_div(cols, tc), pitch = pitch_of(tc);
        const int tile_reads = tr * (tc / RV), tile_writes = tc * (tr / WV);
        T* tile = (T*)smem;
        const int col0 = block % over * tc, row0 = block / over % down * tr;
        const i64 sample = (i64)(block / (over * down)) * rows * cols;
        const T* x = a.at<T>(Slots::X) + sample;
        T* y = a.at<T>(Slots::Y) + sample;
        Vec<T, RV> in[READS];
#pragma unroll
        for (int i = 0; i < READS; ++i) {
            const int at = i * THREADS + threadIdx.x, row = row0 + at / (tc / RV), col = col0 + at % (tc / RV) * RV;
            if (at < tile_reads && row < rows && col < cols) in[i] = load<T, RV>(x + (i64)row * cols + col);
        }
#pragma unroll
        for (int i = 0; i < READS; ++i) {
            const int at = i * THREADS + threadIdx.x;
            if (at < tile_reads) store(tile + at / (tc / RV) * pitch + at % (tc / RV) * RV, in[i]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WRITES; ++i) {
            const int at = i * THREADS + threadIdx.x, c = at / (tr / WV), r = at % (tr / WV) * WV;
            if (at < tile_writes && row0 + r < rows && col0 + c < cols) {
                Vec<T, WV> out;
#pragma unroll
                for (int j = 0; j < WV; ++j) out.v[j] = tile[(r + j) * pitch + c];
                store(y + (i64)(col0 + c) * rows + row0 + r, out);
            }
        }
    }
};

// ---------------------------------------- dropout

// y = x * scale if the element's random number is at least THRESHOLD, otherwise exactly 0; mask has one bit for each
// element, the lowest first, and zeros after the last. THRESHOLD is the rate times 2^32, rounded up; SCALE holds the
// bits of the float 1 / (1 - rate). LEN, THRESHOLD, SCALE and STREAM are the numbers 0 to 3. Overwrites, in place
// allowed; moves 2
// * LEN * sizeof(T) + LEN / 8 bytes.
//
// A block of random words is used for four elements that are 16 apart. A warp handles 256 neighbouring elements: each
// lane draws two blocks of words, the lanes exchange their decisions as ballots (bit 16 h + l of ballot q of round r is
// that of element 128 r + 64 h + 16 q + l), and then move neighbouring elements in vectors of 16 bytes. No word is
// drawn twice.
template <class T, i64 LEN, i64 THRESHOLD, i64 SCALE, i64 STREAM> struct Dropout {
    using Slots = slots::dropout;
    using Len = Number<LEN, 0>;
    static constexpr int PHASES = 1, THREADS = 256, CHUNK = 256;
    static constexpr i64 WORK = 0;
    static constexpr int V = WIDE_V<T>, PIECES = CHUNK / (32 * V);
    static constexpr int blocks_of(i64 len) { return ceil_div((len + CHUNK - 1) / CHUNK, THREADS / 32); }
    static constexpr int blocks(int) { return blocks_of(LEN); }
    DEV int blocks_for(const Args& a, int) { return blocks_of(Len(a)); }
    static constexpr int smem(int) { return 0; }

    DEV u32 pick(const u32 (&ballot)[4], int q) {
        return q < 2 ? (q == 0 ? ballot[0] : ballot[1]) : (q == 2 ? ballot[2] : ballot[3]);
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const int lane = threadIdx.x % 32;
        const Len len(a);
        const i64 chunks = (len + CHUNK - 1) / CHUNK, chunk = (i64)block * (THREADS / 32) + threadIdx.x / 32,
                  base = chunk * CHUNK;
        const u32 threshold = (u32)Number<THRESHOLD, 1>(a), stream = (u32)Number<STREAM, 3>(a);
        const float scale = __uint_as_float((u32)Number<SCALE, 2>(a));
        if (chunk >= chunks) return;
        const bool full = (Len::FIXED && LEN % CHUNK == 0) || base + CHUNK <= len;
        const T* x = a.at<T>(Slots::X) + base;
        T* y = a.at<T>(Slots::Y) + base;
        u8* mask = a.at<u8>(Slots::MASK) + base / 8;
        const i64 seed = a.at<i64>(Slots::COUNTER)[0], step = a.at<i64>(Slots::COUNTER)[1];
        const int rest = full ? CHUNK : (int)(len - base);
        Vec<T, V> in[PIECES];
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const int at = piece * 32 * V + lane * V;
            if (at + V <= rest) in[piece] = load<T, V>(x + at);
            else {
#pragma unroll
                for (int i = 0; i < V; ++i)
                    if (at + i < rest) in[piece].v[i] = x[at + i];
            }
        }
        u32 ballot[2][4];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const Words words = dropout_words(seed, stream, step, (u32)(base / 4) + 32 * r + lane);
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                const int at = 128 * r + lane / 16 * 64 + 16 * q + lane % 16;
                ballot[r][q] = __ballot_sync(0xffffffffu, words.w[q] >= threshold && at < rest);
            }
        }
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const int at = piece * 32 * V + lane * V, shift = at / 64 % 2 * 16 + at % 16;
            const u32 keep = (at < 128 ? pick(ballot[0], at / 16 % 4) : pick(ballot[1], at / 16 % 4)) >> shift;
            Vec<T, V> out;
#pragma unroll
            for (int i = 0; i < V; ++i)
                out.v[i] = (keep >> i & 1) != 0 ? narrow<T>(to_float(in[piece].v[i]) * scale) : T{};
            if (at + V <= rest) store(y + at, out);
            else {
#pragma unroll
                for (int i = 0; i < V; ++i)
                    if (at + i < rest) y[at + i] = out.v[i];
            }
        }
        if (lane < 8) {
            // Lane l writes the bits of the elements from 32 l on, which are in two neighbouring ballots.
            const int q = lane % 2 * 2, h = lane / 2 % 2 * 16;
            const u32 low = lane < 4 ? pick(ballot[0], q) : pick(ballot[1], q),
                      high = lane < 4 ? pick(ballot[0], q + 1) : pick(ballot[1], q + 1);
            const u32 bits = (low >> h & 0xffff) | (high >> h & 0xffff) << 16;
            if (full) *(u32*)(mask + 4 * lane) = bits;
            else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (32 * lane + 8 * i < rest) mask[4 * lane + i] = (u8)(bits >> 8 * i);
            }
        }
    }
};

// dx = dy * scale if the element's bit of the mask is set, otherwise exactly 0. Overwrites, dx may share the memory of
// dy; moves 2 * LEN * sizeof(T) + LEN / 8 bytes. SCALE (number 1) as for Dropout.
template <class T, i64 LEN, i64 SCALE> struct DropoutBwd : Elementwise<DropoutBwd<T, LEN, SCALE>, LEN, WIDE_V<T>> {
    using Slots = slots::dropout_bwd;
    template <int N> struct In {
        Vec<T, N> dy;
        u32 keep;
    };
    template <int N> DEV In<N> read(const Args& a, i64 at) {
        return {load<T, N>(a.at<T>(Slots::DY) + at), (u32)a.at<u8>(Slots::MASK)[at / 8] >> at % 8};
    }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& in) {
        const float scale = __uint_as_float((u32)Number<SCALE, 1>(a));
        Vec<T, N> dx;
#pragma unroll
        for (int i = 0; i < N; ++i)
            dx.v[i] = (in.keep >> i & 1) != 0 ? narrow<T>(to_float(in.dy.v[i]) * scale) : T{};
        store(a.at<T>(Slots::DX) + at, dx);
    }
};

// mask [LEN / 8] (bits): whether x [LEN] is above zero; LEN is a multiple of 8. Slots: x, mask. Overwrites; moves LEN *
// sizeof(T) + LEN / 8 bytes.
template <class T, i64 LEN> struct SignBits : Elementwise<SignBits<T, LEN>, LEN, 8> {
    using Slots = slots::sign_bits;
    static_assert(!is_fixed(LEN) || LEN % 8 == 0, "a byte of the mask belongs to eight elements");
    template <int N> using In = Vec<float, N>;
    template <int N> DEV In<N> read(const Args& a, i64 at) {
        if constexpr (sizeof(T) == 4) return load_floats<N>(a.at<float>(Slots::X) + at);
        else {
            const Vec<T, N> x = load<T, N>(a.at<T>(Slots::X) + at);
            In<N> out;
#pragma unroll
            for (int i = 0; i < N; ++i) out.v[i] = to_float(x.v[i]);
            return out;
        }
    }
    template <int N> DEV void write(const Args& a, i64 at, const In<N>& in) {
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) bits |= (u32)(in.v[i] > 0.0f) << i;
        a.at<u8>(Slots::MASK)[at / 8] = (u8)bits;
    }
};

// ---------------------------------------- scalars of a step

// counter [2] (i64: seed, step) with one added to the step, unless `scaler` (float) is bound and scaler[3] is 1: a step
// that overflowed updates nothing. Only one thread is used; in place allowed. The block has as many threads as those of
// other operations, so that they can share a launch.
struct StepInc : OneBlock<256> {
    using Slots = slots::step_inc;
    template <int PHASE> static __device__ void run(const Args& a, int, char*) {
        if (threadIdx.x != 0) return;
        const i64* prev = a.has(Slots::COUNTER_PREV) ? a.at<i64>(Slots::COUNTER_PREV) : a.at<i64>(Slots::COUNTER);
        const i64 seed = prev[0], step = prev[1];
        a.at<i64>(Slots::COUNTER)[0] = seed;
        const bool skipped = a.has(Slots::SCALER) && a.at<float>(Slots::SCALER)[3] == 1.0f;
        a.at<i64>(Slots::COUNTER)[1] = (i64)((u64)step + (skipped ? 0 : 1));
    }
};

// corr [2] = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t), where t is the step of the counter, minus the number of skipped
// steps if `skipped` (slot 2, float) is bound; BETA1 and BETA2 are the bits of doubles and the numbers 0 and 1. One
// thread computes each, in double precision; the block has as many threads as for StepInc. The power is computed by
// squaring, which takes a fraction of the library function's latency. Its error of about t units in the last place is
// negligible compared with the rounding to float, because the power vanishes before t is large.
template <u64 BETA1, u64 BETA2> struct BiasCorr : OneBlock<256> {
    using Slots = slots::bias_corr;
    template <int PHASE> static __device__ void run(const Args& a, int, char*) {
        if (threadIdx.x >= 2) return;
        const Number<(i64)BETA1, 0> beta1(a);
        const Number<(i64)BETA2, 1> beta2(a);
        double square = __longlong_as_double(threadIdx.x == 0 ? (i64)beta1 : (i64)beta2), power = 1.0;
        const u64 skipped = a.has(Slots::SKIPPED) ? (u64)a.at<float>(Slots::SKIPPED)[0] : 0;
        for (u64 t = (u64)a.at<i64>(Slots::COUNTER)[1] - skipped; t != 0; t >>= 1) {
            if (t & 1) power *= square;
            square *= square;
        }
        const double rest = 1.0 - power;
        a.at<float>(Slots::CORR)[threadIdx.x] = (float)(1.0 / (threadIdx.x == 0 ? rest : sqrt(rest)));
    }
};

// Slots: 0 row_loss [ROWS], 1 loss [1], 2 row_right [ROWS], 3 accuracy [1], all float, the last two if they are bound:
// means over the rows (number 0). One block, which adds in a fixed order; overwrites; moves 4 to 8 bytes a row.
template <i64 ROWS> struct LossMean {
    using Slots = slots::loss_mean;
    static constexpr int PHASES = 1, THREADS = ROWS > 4096 || ROWS == LARGE ? 1024 : 256;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return 1; }
    DEV int blocks_for(const Args&, int) { return 1; }
    static constexpr int WARPS = THREADS / 32;
    static constexpr int smem(int) { return 2 * 4 * WARPS; }
    template <int PHASE> static __device__ void run(const Args& a, int, char* smem) {
        const int count = (int)Number<ROWS, 0>(a);
        const bool counts = a.has(Slots::ACCURACY);
        const float *const losses = a.at<float>(Slots::ROW_LOSS), *const rights = a.at<float>(Slots::ROW_RIGHT);
        float loss = 0.0f, right = 0.0f;
#pragma unroll(is_fixed(ROWS) ? 8 : 2)
        for (int first = 0; first < count; first += THREADS) {
            const int row = first + threadIdx.x;
            if (row >= count) break;
            loss += losses[row];
            if (counts) right += rights[row];
        }
        loss = warp_reduce<Sum>(loss);
        right = warp_reduce<Sum>(right);
        float* const of_warps = (float*)smem;
        if (threadIdx.x % 32 == 0) {
            of_warps[threadIdx.x / 32] = loss;
            of_warps[WARPS + threadIdx.x / 32] = right;
        }
        __syncthreads();
        // One thread adds up the losses of the warps, another one the right answers.
        if (threadIdx.x >= (counts ? 2 : 1)) return;
        const float* const own = of_warps + threadIdx.x * WARPS;
        float sum = own[0];
#pragma unroll
        for (int i = 1; i < WARPS; ++i) sum += own[i];
        a.at<float>(threadIdx.x == 0 ? Slots::LOSS : Slots::ACCURACY)[0] = sum / (float)count;
    }
};

// accuracy [1] (float) = share of the rows of scores [ROWS, CLASSES] (T) whose first largest score is at the label
// (i32). A row counts as wrong if its label is out of range or one of its scores is NaN. One block; counts are
// integers, so that the order of additions does not matter. A group of L lanes handles a row: no score before the label
// may be as large as the label's score, and no score after it may be larger. ROWS and CLASSES are the numbers 0 and 1.
// Overwrites; moves ROWS * (CLASSES * sizeof(T) + 4) bytes.
template <class T, i64 ROWS, i64 CLASSES> struct Accuracy {
    using Slots = slots::accuracy;
    using Classes = Number<CLASSES, 1>;
    static constexpr int PHASES = 1, THREADS = ROWS == LARGE || (is_fixed(ROWS) && ROWS * CLASSES > 4096) ? 1024 : 256;
    static constexpr i64 WORK = 0;
    static constexpr int L = !Classes::FIXED ? 8 : CLASSES <= 8 ? 1 : CLASSES <= 16 ? 2 : CLASSES <= 64 ? 8 : 32;
    static constexpr int AT_ONCE = THREADS / L;
    static constexpr int blocks(int) { return 1; }
    DEV int blocks_for(const Args&, int) { return 1; }
    static constexpr int smem(int) { return 4 * THREADS / 32; }
    template <int PHASE> static __device__ void run(const Args& a, int, char* smem) {
        const int lane = threadIdx.x % 32, within = lane % L;
        const u32 group = L == 32 ? 0xffffffffu : ((1u << L % 32) - 1) << (lane - within);
        const Number<ROWS, 0> rows(a);
        const Classes given(a);
        const int classes = (int)given;
        float right = 0.0f;
        for (i64 row0 = 0; row0 < rows; row0 += AT_ONCE) {
            const i64 row = row0 + threadIdx.x / L;
            bool fits = false;
            if (row < rows) {
                const int label = a.at<int>(Slots::LABELS)[row];
                if (label >= 0 && label < classes) {
                    const T* scores = a.at<T>(Slots::SCORES) + row * classes;
                    const float best = to_float(scores[label]);
                    fits = true;
#pragma unroll 8
                    for (int col = within; col < classes; col += L) {
                        const float score = to_float(scores[col]);
                        fits &= col < label ? score < best : score <= best;
                    }
                }
            }
            const u32 all = __ballot_sync(0xffffffffu, fits);
            if (within == 0 && (all & group) == group) right += 1.0f;
        }
        right = block_reduce<Sum, THREADS>(right, (float*)smem);
        if (threadIdx.x == 0) a.at<float>(Slots::ACCURACY)[0] = right / (float)rows;
    }
};

// The sum over the rows of a [ROWS, COLS] (T) is the gradient of a bias, which Rule updates at once. A block handles 32
// EACH columns: each warp sums every eighth row, EACH neighbours for each lane; then a thread of each column adds the
// sums of the warps in a fixed order. Slots: those of StepSlots. There is a partial metric for every 32 columns, which
// are those of a warp. Constants that a general member reads are at the address that is number 2. Moves ROWS * COLS *
// sizeof(T) bytes.
template <class Rule, class T, i64 ROWS, i64 COLS, int EACH> struct BiasStep {
    using Rows = Size<ROWS, 0>;
    using Cols = Size<COLS, 1>;
    static constexpr int PHASES = 1, THREADS = 256, WARPS = THREADS / 32;
    static constexpr bool BEGINS = !Rows::FIXED;
    static constexpr i64 WORK = 0;
    static_assert(!Cols::FIXED || COLS % EACH == 0, "a lane's columns are all there or all missing");
    static constexpr int blocks(int) { return ceil_div(COLS, 32 * EACH); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(Cols(a), 32 * EACH); }
    static constexpr int smem(int) { return WARPS * 32 * EACH * 4; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        using Slots = StepSlots<Rule>;
        constexpr int MOST = 16 / EACH, FLIGHT = Rows::FIXED ? min_i(ceil_div(ROWS, WARPS), MOST) : MOST;
        const Rows given_rows(a);
        const Cols given_cols(a);
        const int rows = (int)given_rows, cols = (int)given_cols, steps = ceil_div(rows, WARPS),
                  count = ceil_div(cols, 32);
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, col = (block * 32 + lane) * EACH;
        const bool inside = (Cols::FIXED && COLS % (32 * EACH) == 0) || col < cols;
        const T* const from = a.at<T>(Slots::A) + (inside ? col : 0);
        Vec<float, EACH>* const partial = (Vec<float, EACH>*)smem;
        // The column that the thread updates.
        constexpr int WIDTH = 32 * EACH;
        const int own = block * WIDTH + threadIdx.x;
        const bool updates = threadIdx.x < WIDTH && ((Cols::FIXED && COLS % WIDTH == 0) || own < cols);
        Rule rule;
        float param, state[2];
        Vec<float, EACH> sum;
        // The constants of a general member are read before the preceding launch is done: no launch writes them.
        if constexpr (Rule::WORDS > 0) {
            if (updates) rule.read_constants((const u32*)(i64)Number<ANY, 2>(a));
        }
        if constexpr (BEGINS) begin(a);
        if (updates) {
            rule.read(a);
            param = a.at<float>(Rule::PARAM)[own];
#pragma unroll
            for (int s = 0; s < Rule::STATES; ++s) state[s] = a.at<float>(Rule::STATE + s)[own];
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) sum.v[i] = 0.0f;
        const auto add = [&](const Vec<T, EACH>& more) {
#pragma unroll
            for (int i = 0; i < EACH; ++i) sum.v[i] += to_float(more.v[i]);
        };
        if constexpr (Rows::FIXED) {
#pragma unroll(FLIGHT)
            for (int step = 0; step < steps; ++step) {
                const int row = warp + step * WARPS;
                if (ROWS % WARPS != 0 && row >= rows) continue;
                add(load<T, EACH>(from + (i64)row * cols));
            }
        } else {
            add_rows<FLIGHT>(sum.v, from, cols, warp, rows, WARPS);
        }
        partial[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x >= WIDTH) return;
        UpdateSum m = {0u, 0.0f, 0.0f};
        if (updates) {
            const float* const shares = (const float*)smem + threadIdx.x;
            float grad = shares[0];
#pragma unroll
            for (int w = 1; w < WARPS; ++w) grad += shares[w * WIDTH];
            const float before = param;
            param = rule.step(before, grad, state[0], state[1]);
            m.count(param - before, grad);
            a.at<float>(Rule::PARAM)[own] = param;
#pragma unroll
            for (int s = 0; s < Rule::STATES; ++s) a.at<float>(Rule::STATE + s)[own] = state[s];
            if (a.has(Slots::SHADOW)) a.at<T>(Slots::SHADOW)[own] = narrow<T>(param);
        }
        if (!a.has(Slots::PARTS)) return;
        UpdatePart* const parts = a.at<UpdatePart>(Slots::PARTS);
        const UpdatePart all = lanes_metric(m).part();
        if (lane == 0 && own < cols) parts[block * EACH + warp] = all;
        if (own < 32) fill_parts(parts, count);
    }
};

// update_max [1] = largest of update_max_seg [SEGMENTS] (NaN if one of them is NaN) and grad_norm [1] = square root of
// the sum of the squares of grad_norm_seg [SEGMENTS], each if both its input and its output are bound. Floats; one
// block, which adds in a fixed order. Overwrites.
template <i64 SEGMENTS> struct UpdateMetrics {
    using Slots = slots::update_metrics;
    using Segments = Number<SEGMENTS, 0>;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return 1; }
    DEV int blocks_for(const Args&, int) { return 1; }
    static constexpr int smem(int) { return 8 * THREADS / 32; }
    template <class R> DEV float reduce(const float* from, const Segments& segments, char* smem) {
        float v = 0.0f;
#pragma unroll 4
        for (int i = threadIdx.x; i < segments; i += THREADS) v = R::of(v, from[i]);
        return block_reduce<R, THREADS>(v, (float*)smem);
    }
    template <int PHASE> static __device__ void run(const Args& a, int, char* smem) {
        const Segments segments(a);
        if (a.has(Slots::UPDATE_MAX_SEG) && a.has(Slots::UPDATE_MAX)) {
            const float largest = reduce<MaxOrNan>(a.at<float>(Slots::UPDATE_MAX_SEG), segments, smem);
            if (threadIdx.x == 0) a.at<float>(Slots::UPDATE_MAX)[0] = largest;
        }
        if (a.has(Slots::GRAD_NORM_SEG) && a.has(Slots::GRAD_NORM)) {
            UpdateMetric* const of_warp = (UpdateMetric*)smem;
            UpdateSum sum = {0u, 0.0f, 0.0f};
#pragma unroll 4
            for (int i = threadIdx.x; i < segments; i += THREADS) sum.add_norm(a.at<float>(Slots::GRAD_NORM_SEG)[i]);
            sum = lanes_metric(sum);
            // The maximum in shared memory is no longer read.
            __syncthreads();
            if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum.stored();
            __syncthreads();
            if (threadIdx.x == 0) {
                for (int w = 1; w < THREADS / 32; ++w) sum.add(of_warp[w]);
                a.at<float>(Slots::GRAD_NORM)[0] = sum.norm();
            }
        }
    }
};
