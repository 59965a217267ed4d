// Attention on tensor cores: like attention.cu, with products of 16-bit factors or of floats rounded to TF32, and float
// accumulators. Scores, softmax and everything else between products are floats.
//
// A block owns OWN positions of one head, 16 for each warp, and streams tiles of STREAM other positions through BUFFERS
// buffers in shared memory. The first products of a warp give 16 of its own rows by the streamed positions; this result
// has the layout of the first factor of the following products, so that probabilities never leave the registers.

// The tiles of one layer's attention A. A row of features in shared memory is padded to a multiple of a matrix
// instruction's depth and to an odd multiple of 16 bytes, so that the rows that a matrix load reads are in different
// banks.
template <class A_, int WARPS_, int STREAM_, int BUFFERS_> struct AttendMma {
    using A = A_;
    using T = typename A::T;
    using Sizes = typename A::Sizes;
    static constexpr int D = A::D, WARPS = WARPS_, STREAM = STREAM_, BUFFERS = BUFFERS_;
    static constexpr int THREADS = 32 * WARPS, OWN = 16 * WARPS;
    // Elements of 16 bytes, and features of one matrix instruction.
    static constexpr bool IS_TF32 = sizeof(T) == 4;
    static constexpr int E = 16 / (int)sizeof(T), KS = 2 * E, STEPS = ceil_div(D, KS), DP = STEPS * KS, PITCH = DP + E;
    // Groups of eight features, and whether a warp keeps its own features in registers.
    static constexpr int NT = DP / 8;
    static constexpr bool IS_HELD = STEPS <= 4;
    static constexpr int HELD = IS_HELD ? STEPS : 1;
    // Bytes of a block's own tile, of the streamed tiles of one kind, and of the bits of dropout.
    static constexpr int OWN_BYTES = OWN * PITCH * (int)sizeof(T), STREAM_TILE = STREAM * PITCH;
    static constexpr int STREAM_BYTES = BUFFERS * STREAM_TILE * (int)sizeof(T);
    static constexpr int MASK_BYTES = A::DROPS ? OWN * STREAM / 8 : 0;
    // Floats of a row of a result that is stored through shared memory.
    static constexpr int STAGED = DP + 8;
    static_assert(D % 8 == 0 && (OWN % STREAM == 0 || STREAM % OWN == 0), "groups of features, tiles that line up");
    static_assert(OWN <= 64 && STREAM <= 64, "a tile has keys of one group of random numbers");

    DEV int lane() { return threadIdx.x % 32; }
    DEV int warp() { return threadIdx.x / 32; }
    // In a result of 16 by 8, a lane has columns 2 t and 2 t + 1 of rows g and g + 8.
    DEV int g() { return threadIdx.x % 32 / 4; }
    DEV int t() { return threadIdx.x % 4; }
    // The factor that turns products into exponents of two: the scale divided by ln 2.
    DEV float to_exponents() { return A::scale() * 1.44269504f; }

    // Starts to copy ROWS rows from position `first` on, of rows with a stride of `step` elements; zeros for positions
    // beyond the last.
    template <int ROWS> DEV void fetch(Sizes size, T* to, const T* from, int step, int first) {
        constexpr int ACROSS = DP / E;
#pragma unroll
        for (int i = 0; i < ceil_div(ROWS * ACROSS, THREADS); ++i) {
            const int index = threadIdx.x + i * THREADS, row = index / ACROSS, col = index % ACROSS * E;
            if (ROWS * ACROSS % THREADS != 0 && row >= ROWS) break;
            const bool valid = first + row < size.len && (D == DP || col < D);
            copy_async<16>(to + row * PITCH + col, valid ? from + (i64)(first + row) * step + col : from, valid);
        }
    }

    // Rotates the pairs of ROWS rows of shared memory by their angles.
    template <int ROWS> DEV void turn(Sizes size, T* tile, int first, const float2* angles) {
        constexpr int HALF = D / 2, GROUPS = HALF / 4;
        for (int i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
            const int row = i / GROUPS, pair = i % GROUPS * 4, position = first + row;
            if (position >= size.len) break;
            T* at = tile + row * PITCH + pair;
            Vec<T, 4> x = load<T, 4>(at), y = load<T, 4>(at + HALF);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 by = angles[(i64)position * HALF + pair + j];
                const float u = to_float(x.v[j]), v = to_float(y.v[j]);
                x.v[j] = narrow<T>(fmaf(u, by.x, -v * by.y));
                y.v[j] = narrow<T>(fmaf(u, by.y, v * by.x));
            }
            store(at, x);
            store(at + HALF, y);
        }
    }
    // Starts the copies of the first streamed rows and waits for those of the block's own rows, which were started
    // before; with rotary embedding, the own rows are rotated.
    template <bool TURNED, class Start>
    DEV void begin_own(Sizes size, T* own, int first, const float2* angles, const Start& start) {
        copy_commit();
        start(0);
        copy_wait<1>();
        __syncthreads();
        if constexpr (TURNED) {
            turn<OWN>(size, own, first, angles);
            __syncthreads();
        }
    }

    // The dropout mask of a tile, from position `first_key` on; `row` is the number of its first query among those of
    // all samples and heads. A query has a byte for every eight keys.
    template <int QUERIES, int KEYS>
    DEV void draw(const Args& a, Sizes size, u8* mask, const i64* counter, i64 row, int first_key) {
        constexpr int BYTES = KEYS / 8;
        const int groups = size.tiles_of(64);
        const int before = first_key % 64 / 16;
        for (int i = threadIdx.x; i < 2 * QUERIES; i += THREADS) {
            const int query = i / 2, part = i % 2;
            const u32 block = (u32)(16 * ((row + query) * groups + first_key / 64) + 8 * part);
            u32 kept[4] = {0, 0, 0, 0};
#pragma unroll 1
            for (int k = 0; k < 8; ++k) {
                const Words words = dropout_words(counter[0], A::stream(a), counter[1], block + k);
#pragma unroll
                for (int j = 0; j < 4; ++j) kept[j] |= (words.w[j] >= A::threshold(a) ? 1u : 0u) << k;
            }
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (j >= before && j < before + KEYS / 16) mask[query * BYTES + 2 * (j - before) + part] = (u8)kept[j];
        }
    }

    DEV void round(u32 (&words)[4]) {
        if constexpr (IS_TF32) {
#pragma unroll
            for (int i = 0; i < 4; ++i) words[i] = to_tf32(__uint_as_float(words[i]));
        }
    }
    // c += a b, where b is words `at` and `at` + 1.
    template <int AT> DEV void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[4]) {
        const u32 two[2] = {b[AT], b[AT + 1]};
        if constexpr (IS_TF32) mma_tf32(c, a, two);
        else mma_half<T>(c, a, two);
    }

    // One step along the features of the warp's own 16 rows, of which `x` is the first.
    DEV void own_rows(u32 (&a)[4], const T* x, int step) {
        load_matrix_x4(a, x + lane() % 16 * PITCH + (2 * step + lane() / 16) * E);
        round(a);
    }
    DEV void hold(u32 (&held)[HELD][4], const T* x) {
        if constexpr (IS_HELD) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) own_rows(held[step], x, step);
        }
    }

    // c = x y^T of the warp's own 16 rows and 8 NS streamed ones.
    template <int NS> DEV void products(float (&c)[NS][4], const u32 (&held)[HELD][4], const T* x, const T* y) {
#pragma unroll
        for (int j = 0; j < NS; ++j) {
#pragma unroll
            for (int v = 0; v < 4; ++v) c[j][v] = 0.0f;
        }
        const T* at = y + (lane() % 8 + lane() / 16 * 8) * PITCH + lane() / 8 % 2 * E;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            u32 a[4];
            if constexpr (IS_HELD) {
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = held[step][i];
            } else {
                own_rows(a, x, step);
            }
#pragma unroll
            for (int j = 0; j < NS / 2; ++j) {
                u32 b[4];
                load_matrix_x4(b, at + 16 * j * PITCH + 2 * step * E);
                round(b);
                multiply<0>(c[2 * j], a, b);
                multiply<2>(c[2 * j + 1], a, b);
            }
        }
    }

    // out += w y for the weights w of 8 NS streamed rows, in the layout of a result.
    template <int NS> DEV void add_products(float (&out)[NT][4], const float (&w)[NS][4], const T* y) {
        if constexpr (IS_TF32) {
            // The first and the second four elements of a step are the even and the odd columns, in both factors.
            const T* at = y + 2 * t() * PITCH + g();
#pragma unroll
            for (int k = 0; k < NS; ++k) {
                const u32 a[4] = {to_tf32(w[k][0]), to_tf32(w[k][2]), to_tf32(w[k][1]), to_tf32(w[k][3])};
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    const T* from = at + 8 * k * PITCH + 8 * n;
                    const u32 b[4] = {to_tf32(to_float(from[0])), to_tf32(to_float(from[PITCH])), 0, 0};
                    multiply<0>(out[n], a, b);
                }
            }
        } else {
            const T* at = y + lane() % 16 * PITCH + lane() / 16 * 8;
#pragma unroll
            for (int k = 0; k < NS / 2; ++k) {
                const u32 a[4] = {Pair<T>::join(w[2 * k][0], w[2 * k][1]), Pair<T>::join(w[2 * k][2], w[2 * k][3]),
                    Pair<T>::join(w[2 * k + 1][0], w[2 * k + 1][1]), Pair<T>::join(w[2 * k + 1][2], w[2 * k + 1][3])};
#pragma unroll
                for (int n = 0; n < NT / 2; ++n) {
                    u32 b[4];
                    load_matrix_x4_trans(b, at + 16 * k * PITCH + 16 * n);
                    multiply<0>(out[2 * n], a, b);
                    multiply<2>(out[2 * n + 1], a, b);
                }
            }
        }
    }

    DEV void clear(float (&f)[NT][4]) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
#pragma unroll
            for (int v = 0; v < 4; ++v) f[n][v] = 0.0f;
        }
    }

    // Writes the warp's 16 rows from position `first` on, through shared memory that no other warp uses, to rows with a
    // stride of `step` elements; the upper and the lower eight rows are multiplied by a factor each. TURNED: pairs are
    // rotated back.
    template <bool TURNED>
    DEV void put(Sizes size, T* to, int step, int first, const float (&f)[NT][4], float upper, float lower,
        float* stage, const float2* angles) {
        float* rows = stage + 16 * warp() * STAGED;
        __syncwarp();
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            float* at = rows + g() * STAGED + 8 * n + 2 * t();
            store(at, Vec<float, 2>{{f[n][0] * upper, f[n][1] * upper}});
            store(at + 8 * STAGED, Vec<float, 2>{{f[n][2] * lower, f[n][3] * lower}});
        }
        __syncwarp();
        constexpr int ACROSS = D / E, HALF = D / 2;
        for (int i = lane(); i < 16 * ACROSS; i += 32) {
            const int row = i / ACROSS, col = i % ACROSS * E, position = first + row;
            if (position >= size.len) break;
            Vec<float, 4> staged[E / 4];
#pragma unroll
            for (int j = 0; j < E / 4; ++j) staged[j] = load<float, 4>(rows + row * STAGED + col + 4 * j);
            Vec<T, E> out;
#pragma unroll
            for (int j = 0; j < E; ++j) {
                float found = staged[j / 4].v[j % 4];
                if constexpr (TURNED) {
                    const bool is_first = col + j < HALF;
                    const int pair = col + j - (is_first ? 0 : HALF);
                    const float2 by = angles[(i64)position * HALF + pair];
                    const float other = rows[row * STAGED + pair + (is_first ? HALF : 0)];
                    found = fmaf(found, by.x, (is_first ? other : -other) * by.y);
                }
                out.v[j] = narrow<T>(found);
            }
            store(to + (i64)position * step + col, out);
        }
    }
};

// Like `Attention`.
template <class M> struct AttentionMma {
    using Slots = slots::attention;
    using A = typename M::A;
    using T = typename A::T;
    static constexpr int PHASES = A::ROTARY ? 2 : 1, THREADS = M::THREADS, NS = M::STREAM / 8;
    // Limits registers so that sixteen warps fit a multiprocessor, as long as no registers spill.
    static constexpr int MIN_BLOCKS = !M::IS_TF32 && M::NT <= 8 ? 16 / M::WARPS : 0;
    using Sizes = typename A::Sizes;
    static constexpr i64 WORK = 8 * Sizes().angles();
    static constexpr int blocks_of(Sizes size, int phase) {
        return A::ROTARY && phase == 0 ? size.angle_blocks(THREADS) : size.batch * size.heads * size.tiles_of(M::OWN);
    }
    static constexpr int blocks(int phase) { return blocks_of(Sizes(), phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(Sizes(a), phase); }
    static constexpr int smem(int phase) {
        return A::ROTARY && phase == 0 ? 0 : M::OWN_BYTES + 2 * M::STREAM_BYTES + M::MASK_BYTES;
    }
    static_assert(4 * M::OWN * M::STAGED <= M::OWN_BYTES + 2 * M::STREAM_BYTES, "results are staged in the tiles");
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Sizes size(a);
        if constexpr (PHASE + 1 < PHASES) A::template write_angles<THREADS>(size, a.at<float2>(Slots::WORK), block);
        else attend(a, size, block, smem);
    }

    // The softmax of a tile of products, which it replaces by the weights. If the row maximum grows, `out` and `sum`
    // are rescaled. `first_key` and `query` are the first ones of this lane, `kept` its first bits of the dropout mask.
    DEV void soften(Sizes size, float (&s)[NS][4], float (&most)[2], float (&sum)[2], float (&out)[M::NT][4],
        bool is_whole, int query, int first_key, const u8* kept) {
        if (!is_whole) {
#pragma unroll
            for (int j = 0; j < NS; ++j) {
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    const int key = first_key + 8 * j + v % 2;
                    // Queries beyond the last position attend to existing keys, so that none of their values is
                    // infinite.
                    if (key >= size.len || (A::CAUSAL && key > query + v / 2 * 8)) s[j][v] = __int_as_float(0xff800000);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float now = most[r];
#pragma unroll
            for (int j = 0; j < NS; ++j) now = fmaxf(now, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            const float fade = exp2_approximate((most[r] - now) * M::to_exponents()), off = now * M::to_exponents();
            float added = 0.0f;
#pragma unroll
            for (int j = 0; j < NS; ++j) {
                const int bits = A::DROPS ? kept[r * M::STREAM + j] >> 2 * M::t() : 3;
#pragma unroll
                for (int v = 0; v < 2; ++v) {
                    const float term = exp2_approximate(fmaf(s[j][2 * r + v], M::to_exponents(), -off));
                    added += term;
                    s[j][2 * r + v] = A::DROPS && (bits >> v & 1) == 0 ? 0.0f : term;
                }
            }
            sum[r] = fmaf(sum[r], fade, added);
            most[r] = now;
#pragma unroll
            for (int n = 0; n < M::NT; ++n) out[n][2 * r] *= fade, out[n][2 * r + 1] *= fade;
        }
    }

    static __device__ __forceinline__ void attend(const Args& a, Sizes size, int block, char* smem) {
        const int tiles = size.tiles_of(M::OWN), step = size.packed();
        // Late queries attend to the most keys and are processed first.
        const int tile = tiles - 1 - block % tiles, of = block / tiles, head = of % size.heads;
        const int sample = of / size.heads, kv = head / size.group(), first = tile * M::OWN;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * size.len * step;
        const float2* angles = a.at<float2>(Slots::WORK);
        T *q = (T*)smem, *k = q + M::OWN * M::PITCH, *v = k + M::BUFFERS * M::STREAM_TILE;
        u8* mask = (u8*)(v + M::BUFFERS * M::STREAM_TILE);
        const auto start = [&](int turn) {
            const int buffer = turn % M::BUFFERS * M::STREAM_TILE;
            M::template fetch<M::STREAM>(size, k + buffer, qkv + (size.heads + kv) * A::D, step, turn * M::STREAM);
            M::template fetch<M::STREAM>(
                size, v + buffer, qkv + (size.heads + size.kv + kv) * A::D, step, turn * M::STREAM);
            copy_commit();
        };
        M::template fetch<M::OWN>(size, q, qkv + head * A::D, step, first);
        M::template begin_own<A::ROTARY>(size, q, first, angles, start);
        const T* own = q + 16 * M::warp() * M::PITCH;
        u32 held[M::HELD][4];
        M::hold(held, own);
        float out[M::NT][4], most[2], sum[2] = {0.0f, 0.0f};
        most[0] = most[1] = __int_as_float(0xff800000);
        M::clear(out);
        const int top = first + 16 * M::warp(), query = top + M::g();
        const int all = size.tiles_of(M::STREAM);
        const int past = A::CAUSAL ? min_i(ceil_div(first + M::OWN, M::STREAM), all) : all;
#pragma unroll 1
        for (int turn = 0; turn < past; ++turn) {
            const int first_key = turn * M::STREAM;
            T *keys = k + turn % M::BUFFERS * M::STREAM_TILE, *values = v + turn % M::BUFFERS * M::STREAM_TILE;
            copy_wait<0>();
            // The copies of all threads are complete, and no thread still reads the buffer that is filled next.
            __syncthreads();
            if (M::BUFFERS > 1 && turn + 1 < past) start(turn + 1);
            if constexpr (A::ROTARY) M::template turn<M::STREAM>(size, keys, first_key, angles);
            if constexpr (A::DROPS)
                M::template draw<M::OWN, M::STREAM>(
                    a, size, mask, a.at<i64>(Slots::COUNTER), (i64)of * size.len + first, first_key);
            if constexpr (A::ROTARY || A::DROPS) __syncthreads();
            if (!A::CAUSAL || first_key < top + 16) {
                float s[NS][4];
                M::products(s, held, own, keys);
                const bool is_whole =
                    first_key + M::STREAM <= size.len && (!A::CAUSAL || first_key + M::STREAM <= top + 1);
                soften(size, s, most, sum, out, is_whole, query, first_key + 2 * M::t(),
                    mask + (16 * M::warp() + M::g()) * (M::STREAM / 8));
                M::add_products(out, s, values);
            }
            if (M::BUFFERS == 1) {
                __syncthreads();
                if (turn + 1 < past) start(turn + 1);
            }
        }
        __syncthreads();
        float by[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
            by[r] = A::kept(a) / sum[r];
            const int at = query + 8 * r;
            if (a.has(Slots::LSE) && M::t() == 0 && at < size.len)
                a.at<float>(Slots::LSE)[(i64)of * size.len + at] = fmaf(most[r], A::scale(), logf(sum[r]));
        }
        T* y = a.at<T>(Slots::Y) + (i64)sample * size.len * size.width() + head * A::D;
        M::template put<false>(size, y, size.width(), top, out, by[0], by[1], (float*)smem, angles);
    }
};

// Like `AttentionBwd`. In the second phase, a block owns keys and values and streams the queries that attend to them
// with their dy, or owns queries with their dy and streams keys and values. x1 and x2 are the block's own positions, y1
// and y2 the streamed ones: the scores are x1 y1^T, and the gradients of the weights are x2 y2^T.
template <class M> struct AttentionMmaBwd {
    using Slots = slots::attention_bwd;
    using A = typename M::A;
    using T = typename A::T;
    // Streamed positions that are processed at a time.
    static constexpr int SUB = 32, NS = SUB / 8;
    using Sizes = typename A::Sizes;
    static constexpr int PHASES = 2, THREADS = M::THREADS, E = M::E;
    // Limits registers so that twelve warps fit a multiprocessor: with six registers more, which some compilers use
    // without a limit, only eight would.
    static constexpr int MIN_BLOCKS = !M::IS_TF32 && M::NT <= 8 ? 12 / M::WARPS : 0;
    static constexpr int LANES = A::D / E <= 1 ? 1 : A::D / E <= 2 ? 2 : A::D / E <= 4 ? 4 : A::D / E <= 8 ? 8
        : A::D / E <= 16 ? 16 : 32;
    static constexpr i64 WORK = 8 * Sizes().angles() + 4ll * Sizes().rows();
    // Bytes of two floats for each streamed query.
    static constexpr int QUERY_BYTES = M::BUFFERS * 2 * M::STREAM * 4;
    static constexpr int angle_blocks(Sizes size) { return size.angle_blocks(THREADS); }
    static constexpr int key_blocks(Sizes size) { return size.batch * size.kv * size.tiles_of(M::OWN); }
    static constexpr int blocks_of(Sizes size, int phase) {
        if (phase == 0) return angle_blocks(size) + ceil_div(size.rows(), THREADS / LANES);
        return key_blocks(size) + size.batch * size.heads * size.tiles_of(M::OWN);
    }
    static constexpr int blocks(int phase) { return blocks_of(Sizes(), phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(Sizes(a), phase); }
    static constexpr int smem(int phase) {
        return phase == 0 ? 0 : 2 * M::OWN_BYTES + 2 * M::STREAM_BYTES + QUERY_BYTES + M::MASK_BYTES;
    }
    static_assert(M::STREAM % SUB == 0, "whole parts of tiles");

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Sizes size(a);
        if constexpr (PHASE == 0) {
            const int before = angle_blocks(size);
            if (block < before) A::template write_angles<THREADS>(size, a.at<float2>(Slots::WORK), block);
            else add_rows(a, size, block - before);
        } else if (block < key_blocks(size)) differentiate<true>(a, size, block, smem);
        else differentiate<false>(a, size, block - key_blocks(size), smem);
    }

    DEV float* row_sums(const Args& a, Sizes size) {
        return (float*)(a.at<float2>(Slots::WORK) + size.angles());
    }
    // LANES lanes add up a row of dy y.
    DEV void add_rows(const Args& a, Sizes size, int block) {
        const int row = block * (THREADS / LANES) + threadIdx.x / LANES, col = threadIdx.x % LANES * E;
        float sum = 0.0f;
        if (row < size.rows() && col < A::D) {
            const int of = row / size.len, position = row % size.len;
            const i64 at = ((i64)(of / size.heads) * size.len + position) * size.width() + of % size.heads * A::D + col;
            const Vec<T, E> dy = load<T, E>(a.at<T>(Slots::DY) + at), y = load<T, E>(a.at<T>(Slots::Y) + at);
#pragma unroll
            for (int i = 0; i < E; ++i) sum = fmaf(to_float(dy.v[i]), to_float(y.v[i]), sum);
        }
        sum = warp_reduce<Sum, LANES>(sum);
        if (row < size.rows() && col == 0) row_sums(a, size)[row] = sum;
    }

    // Replaces the products for the scores in `s` by the weights of the values, and those for the gradients of the
    // weights in `d` by the gradient of the unscaled scores. `lse` (base 2) and `sums` (of dy y) belong to the queries
    // of a lane: its rows, or, if KEYS, its columns, which are in shared memory.
    template <bool KEYS>
    DEV void weigh(const Args& a, float (&s)[NS][4], float (&d)[NS][4], const float (&lse)[2], const float (&sums)[2],
        const float* queries, const u8* kept) {
#pragma unroll
        for (int j = 0; j < NS; ++j) {
            float exponents[2] = {lse[0], lse[1]}, less[2] = {sums[0], sums[1]};
            if constexpr (KEYS) {
                const Vec<float, 2> of = load<float, 2>(queries + 8 * j),
                                    off = load<float, 2>(queries + M::STREAM + 8 * j);
#pragma unroll
                for (int v = 0; v < 2; ++v) exponents[v] = of.v[v] * 1.44269504f, less[v] = off.v[v];
            }
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const int query = KEYS ? v % 2 : v / 2;
                const float p = exp2_approximate(fmaf(s[j][v], M::to_exponents(), -exponents[query]));
                float by = 1.0f, weight = p;
                if constexpr (A::DROPS) {
                    const bool is_kept = KEYS ? kept[(8 * j + v % 2) * (M::OWN / 8) + v / 2] >> M::g() & 1
                                              : kept[v / 2 * M::STREAM + j] >> (2 * M::t() + v % 2) & 1;
                    by = is_kept ? A::kept(a) : 0.0f;
                    weight = is_kept ? p : 0.0f;
                }
                d[j][v] = p * A::scale() * A::less(d[j][v], by, less[query]);
                s[j][v] = weight;
            }
        }
    }

    template <bool KEYS>
    static __device__ __forceinline__ void differentiate(const Args& a, Sizes size, int block, char* smem) {
        const int tiles = size.tiles_of(M::OWN), heads = KEYS ? size.kv : size.heads, group = size.group();
        const int packed = size.packed(), width = size.width();
        // Tiles that stream the most positions are processed first: early keys, late queries.
        const int tile = KEYS ? block % tiles : tiles - 1 - block % tiles, own_head = block / tiles % heads;
        const int sample = block / tiles / heads, kv = KEYS ? own_head : own_head / group, first = tile * M::OWN;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * size.len * packed;
        const T* dy = a.at<T>(Slots::DY) + (i64)sample * size.len * width;
        const T *keys = qkv + (size.heads + kv) * A::D, *values = keys + size.kv * A::D;
        const float2* angles = a.at<float2>(Slots::WORK);
        T *x1 = (T*)smem, *x2 = x1 + M::OWN * M::PITCH, *y1 = x2 + M::OWN * M::PITCH,
          *y2 = y1 + M::BUFFERS * M::STREAM_TILE;
        float* queries = (float*)(y2 + M::BUFFERS * M::STREAM_TILE);
        u8* mask = (u8*)(queries + QUERY_BYTES / 4);
        const int begin_tile = KEYS && A::CAUSAL ? first / M::STREAM : 0;
        const int all = size.tiles_of(M::STREAM);
        const int end_tile = !KEYS && A::CAUSAL ? min_i(ceil_div(first + M::OWN, M::STREAM), all) : all;
        const int each = end_tile - begin_tile, turns = KEYS ? group * each : each;
        const auto head_of = [&](int turn) { return KEYS ? kv * group + turn / each : own_head; };
        const auto streamed = [&](int turn) { return (begin_tile + turn % each) * M::STREAM; };
        const auto start = [&](int turn) {
            const int at = turn % M::BUFFERS, buffer = at * M::STREAM_TILE, from = streamed(turn), head = head_of(turn);
            if constexpr (KEYS) {
                M::template fetch<M::STREAM>(size, y1 + buffer, qkv + head * A::D, packed, from);
                M::template fetch<M::STREAM>(size, y2 + buffer, dy + head * A::D, width, from);
                for (int i = threadIdx.x; i < 2 * M::STREAM; i += THREADS) {
                    const float* of = i < M::STREAM ? a.at<float>(Slots::LSE) : row_sums(a, size);
                    const int query = from + i % M::STREAM;
                    const bool valid = query < size.len;
                    const i64 row = (i64)(sample * size.heads + head) * size.len + (valid ? query : 0);
                    copy_async<4>(queries + at * 2 * M::STREAM + i, of + row, valid);
                }
            } else {
                M::template fetch<M::STREAM>(size, y1 + buffer, keys, packed, from);
                M::template fetch<M::STREAM>(size, y2 + buffer, values, packed, from);
            }
            copy_commit();
        };
        M::template fetch<M::OWN>(size, x1, KEYS ? keys : qkv + own_head * A::D, packed, first);
        if constexpr (KEYS) M::template fetch<M::OWN>(size, x2, values, packed, first);
        else M::template fetch<M::OWN>(size, x2, dy + own_head * A::D, width, first);
        M::template begin_own<A::ROTARY>(size, x1, first, angles, start);
        const int top = first + 16 * M::warp(), row = top + M::g();
        const T *own1 = x1 + 16 * M::warp() * M::PITCH, *own2 = x2 + 16 * M::warp() * M::PITCH;
        u32 held1[M::HELD][4], held2[M::HELD][4];
        M::hold(held1, own1);
        M::hold(held2, own2);
        float lse[2] = {0.0f, 0.0f}, sums[2] = {0.0f, 0.0f};
        if constexpr (!KEYS) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const i64 at = (i64)(sample * size.heads + own_head) * size.len + min_i(row + 8 * r, size.len - 1);
                lse[r] = a.at<float>(Slots::LSE)[at] * 1.44269504f;
                sums[r] = row_sums(a, size)[at];
            }
        }
        // The gradients of x1 and, for keys and values only, of x2.
        float dx1[M::NT][4], dx2[M::NT][4];
        M::clear(dx1);
        M::clear(dx2);
#pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
            const int at = turn % M::BUFFERS, from = streamed(turn);
            T *tile1 = y1 + at * M::STREAM_TILE, *tile2 = y2 + at * M::STREAM_TILE;
            copy_wait<0>();
            // The copies of all threads are complete, and no thread still reads the buffer that is filled next.
            __syncthreads();
            if (M::BUFFERS > 1 && turn + 1 < turns) start(turn + 1);
            if constexpr (A::ROTARY) M::template turn<M::STREAM>(size, tile1, from, angles);
            if constexpr (A::DROPS) {
                constexpr int QUERIES = KEYS ? M::STREAM : M::OWN;
                const i64 of = (i64)(sample * size.heads + head_of(turn)) * size.len;
                M::template draw<QUERIES, M::OWN * M::STREAM / QUERIES>(
                    a, size, mask, a.at<i64>(Slots::COUNTER), of + (KEYS ? from : first), KEYS ? first : from);
            }
            if constexpr (A::ROTARY || A::DROPS) __syncthreads();
#pragma unroll 1
            for (int sub = 0; sub < M::STREAM; sub += SUB) {
                // The first streamed position, the first query and key, and the last ones.
                const int other = from + sub, query = KEYS ? other : top, key = KEYS ? top : other;
                const int last_query = query + (KEYS ? SUB : 16) - 1, last_key = key + (KEYS ? 16 : SUB) - 1;
                if (top >= size.len || other >= size.len || (A::CAUSAL && key > last_query)) continue;
                float s[NS][4], d[NS][4];
                M::products(s, held1, own1, tile1 + sub * M::PITCH);
                M::products(d, held2, own2, tile2 + sub * M::PITCH);
                const bool is_whole = other + SUB <= size.len && (!A::CAUSAL || last_key <= query);
                if (!is_whole) {
#pragma unroll
                    for (int j = 0; j < NS; ++j) {
#pragma unroll
                        for (int v = 0; v < 4; ++v) {
                            const int mine = row + v / 2 * 8, its = other + 8 * j + 2 * M::t() + v % 2;
                            const bool is_seen = its < size.len && (!A::CAUSAL || (KEYS ? mine <= its : its <= mine));
                            if (!is_seen) s[j][v] = __int_as_float(0xff800000);
                        }
                    }
                }
                const u8* kept = KEYS ? mask + (sub + 2 * M::t()) * (M::OWN / 8) + 2 * M::warp()
                                      : mask + (16 * M::warp() + M::g()) * (M::STREAM / 8) + sub / 8;
                weigh<KEYS>(a, s, d, lse, sums, queries + at * 2 * M::STREAM + sub + 2 * M::t(), kept);
                M::add_products(dx1, d, tile1 + sub * M::PITCH);
                if constexpr (KEYS) M::add_products(dx2, s, tile2 + sub * M::PITCH);
            }
            if (M::BUFFERS == 1) {
                __syncthreads();
                if (turn + 1 < turns) start(turn + 1);
            }
        }
        __syncthreads();
        T* dx = a.at<T>(Slots::DX) + (i64)sample * size.len * packed + (KEYS ? size.heads + kv : own_head) * A::D;
        M::template put<A::ROTARY>(size, dx, packed, top, dx1, 1.0f, 1.0f, (float*)smem, angles);
        if constexpr (KEYS)
            M::template put<false>(
                size, dx + size.kv * A::D, packed, top, dx2, A::kept(a), A::kept(a), (float*)smem, angles);
    }
};
