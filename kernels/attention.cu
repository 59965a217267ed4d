// Attention and its gradient, without storing a whole row of scores: tiles of queries are multiplied by tiles of keys
// in shared memory, and the softmax is rescaled from tile to tile (Dao and others, FlashAttention, 2022). Everything is
// computed in floats, whatever T is. Deterministic: separate blocks sum the gradient of queries and that of keys and
// values, without atomics.

// The attention of one layer. qkv [BATCH, LEN, PACKED] (T) has the queries of all HEADS heads, then the keys and then
// the values of all KV heads; GROUP consecutive query heads share one key and value head. SCALE holds the bits of the
// float factor of the scores. If THRESHOLD is not zero, probabilities whose random number is below it are dropped, and
// the others are multiplied by the float with the bits KEPT.
//
// A tile is TILE positions of one head. Thread (ty, tx) of 16 by 16 computes rows ty * EACH + i and columns tx + 16 j
// of a tile of scores, and columns (tx + 16 j) CV + c of the same rows of a tile of features.
template <class T_, int BATCH_, int LEN_, int HEADS_, int KV_, int D_, bool CAUSAL_, bool ROTARY_, u32 SCALE,
    u32 THRESHOLD, u32 KEPT, u32 STREAM, int TILE_>
struct Attend {
    using T = T_;
    static constexpr int BATCH = BATCH_, LEN = LEN_, HEADS = HEADS_, KV = KV_, D = D_, TILE = TILE_;
    static constexpr bool CAUSAL = CAUSAL_, ROTARY = ROTARY_, DROPS = THRESHOLD != 0;
    static constexpr int THREADS = 256, PACKED = (HEADS + 2 * KV) * D, WIDTH = HEADS * D, GROUP = HEADS / KV;
    static constexpr int TILES = ceil_div(LEN, TILE), EACH = TILE / 16;
    // Floats of a row of features and of a row of scores in shared memory, padded so that accesses of 16 bytes to
    // consecutive rows use different banks.
    static constexpr int QUADS = ceil_div(D, 4), ROW = 4 * QUADS + 4, SCORES = TILE + 4;
    static constexpr int FEATURES = TILE * ROW;
    static constexpr int CV = D % 64 == 0 ? 4 : D % 32 == 0 ? 2 : 1, CJ = ceil_div(D, 16 * CV), HOLD = CV * CJ;
    // Cosine and sine of every position and pair of features.
    static constexpr int HALF = D / 2;
    static constexpr i64 ANGLES = ROTARY ? (i64)LEN * HALF : 0;
    static constexpr int ANGLE_BLOCKS = ceil_div(ANGLES, THREADS);
    static constexpr u32 DROP_BELOW = THRESHOLD, STREAM_ID = STREAM;

    DEV float scale() { return __uint_as_float(SCALE); }
    // The factor of probabilities that are not dropped.
    DEV float kept() { return DROPS ? __uint_as_float(KEPT) : 1.0f; }
    DEV int ty() { return threadIdx.x / 16; }
    DEV int tx() { return threadIdx.x % 16; }
    // The column of a feature in registers; columns from D on do not exist.
    DEV int column(int h) { return (tx() + 16 * (h / CV)) * CV + h % CV; }

    // Angles are computed in double, because positions may be large; one for each thread of a block.
    template <int EACH_BLOCK> DEV void write_angles(float2* angles, int block) {
        const i64 at = (i64)block * EACH_BLOCK + threadIdx.x;
        if (at >= ANGLES) return;
        double sine, cosine;
        // ln 10000.
        sincos((double)(at / max_i(HALF, 1)) * exp(-9.210340371976184 * 2.0 * (double)(at % max_i(HALF, 1)) / D), &sine,
            &cosine);
        angles[at] = float2{(float)cosine, (float)sine};
    }

    // Copies a tile of features from position `first` on, of rows with a stride of STEP elements, as floats; zeros for
    // positions beyond the last. TURNED: applies the rotary embedding (pairs are rotated by their angles).
    template <int STEP, bool TURNED> DEV void fetch(float* to, const T* from, int first, const float2* angles) {
        if constexpr (TURNED) {
            for (int i = threadIdx.x; i < TILE * HALF; i += THREADS) {
                const int row = i / HALF, pair = i % HALF, position = first + row;
                float x = 0.0f, y = 0.0f;
                if (position < LEN) {
                    const float2 turn = angles[(i64)position * HALF + pair];
                    const T* at = from + (i64)position * STEP + pair;
                    const float u = to_float(at[0]), v = to_float(at[HALF]);
                    x = u * turn.x - v * turn.y;
                    y = v * turn.x + u * turn.y;
                }
                to[row * ROW + pair] = x;
                to[row * ROW + pair + HALF] = y;
            }
        } else {
            constexpr int V = vec_width<T>(D), GROUPS = D / V;
            for (int i = threadIdx.x; i < TILE * GROUPS; i += THREADS) {
                const int row = i / GROUPS, col = i % GROUPS * V;
                Vec<T, V> found{};
                if (first + row < LEN) found = load<T, V>(from + (i64)(first + row) * STEP + col);
#pragma unroll
                for (int j = 0; j < V; ++j) to[row * ROW + col + j] = to_float(found.v[j]);
            }
        }
        if constexpr (D % 4 != 0) {
            constexpr int PAD = 4 * QUADS - D;
            for (int i = threadIdx.x; i < TILE * PAD; i += THREADS) to[i / PAD * ROW + D + i % PAD] = 0.0f;
        }
    }
    // Copies a tile of the keys and one of the values of a head; with rotary embedding, keys are rotated.
    DEV void fetch_keys(float* k, float* v, const T* qkv, int kv, int first, const float2* angles) {
        fetch<PACKED, ROTARY>(k, qkv + (HEADS + kv) * D, first, angles);
        fetch<PACKED, false>(v, qkv + (HEADS + KV + kv) * D, first, angles);
    }
    // The same between barriers: after all threads have used the previous tiles, and visible to all of them.
    DEV void next_keys(float* k, float* v, const T* qkv, int kv, int first, const float2* angles) {
        __syncthreads();
        fetch_keys(k, v, qkv, kv, first, angles);
        __syncthreads();
    }

    // s = a b^T of two tiles of features.
    DEV void products(const float* a, const float* b, float (&s)[EACH][EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) s[i][j] = 0.0f;
        }
#pragma unroll 4
        for (int quad = 0; quad < QUADS; ++quad) {
            Vec<float, 4> rows[EACH], cols[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                rows[i] = load<float, 4>(a + (ty() * EACH + i) * ROW + 4 * quad);
                cols[i] = load<float, 4>(b + (tx() + 16 * i) * ROW + 4 * quad);
            }
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
#pragma unroll
                    for (int k = 0; k < 4; ++k) s[i][j] += rows[i].v[k] * cols[j].v[k];
                }
            }
        }
    }

    // out += p f of a tile of scores and one of features.
    DEV void add_product(const float* p, const float* f, float (&out)[EACH][HOLD]) {
#pragma unroll 2
        for (int quad = 0; quad < TILE / 4; ++quad) {
            Vec<float, 4> rows[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) rows[i] = load<float, 4>(p + (ty() * EACH + i) * SCORES + 4 * quad);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float* row = f + (4 * quad + k) * ROW;
#pragma unroll
                for (int j = 0; j < CJ; ++j) {
                    const int col = column(j * CV);
                    const Vec<float, CV> features = load<float, CV>(row + (col < D ? col : 0));
#pragma unroll
                    for (int c = 0; c < CV; ++c) {
#pragma unroll
                        for (int i = 0; i < EACH; ++i) out[i][j * CV + c] += rows[i].v[k] * features.v[c];
                    }
                }
            }
        }
    }

    // A tile of scores to shared memory, or its transpose.
    DEV void keep(float* to, const float (&s)[EACH][EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int j = 0; j < EACH; ++j) to[(ty() * EACH + i) * SCORES + tx() + 16 * j] = s[i][j];
        }
    }
    DEV void keep_transposed(float* to, const float (&s)[EACH][EACH]) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            Vec<float, EACH> rows;
#pragma unroll
            for (int i = 0; i < EACH; ++i) rows.v[i] = s[i][j];
            store(to + (tx() + 16 * j) * SCORES + ty() * EACH, rows);
        }
    }

    // Writes a tile of features from position `first` on, each row divided by `over`.
    template <int STEP> DEV void put(T* to, int first, const float (&f)[EACH][HOLD], const float (&over)[EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int position = first + ty() * EACH + i;
            if (position >= LEN) continue;
#pragma unroll
            for (int h = 0; h < HOLD; ++h)
                if (column(h) < D) to[(i64)position * STEP + column(h)] = narrow<T>(f[i][h] / over[i]);
        }
    }
    // The same for a gradient; if TURNED, pairs are rotated back, through a tile of shared memory that no other thread
    // uses.
    template <int STEP, bool TURNED>
    DEV void put_gradient(T* to, int first, const float (&f)[EACH][HOLD], const float2* angles, float* tile) {
        if constexpr (TURNED) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
#pragma unroll
                for (int h = 0; h < HOLD; ++h)
                    if (column(h) < D) tile[(ty() * EACH + i) * ROW + column(h)] = f[i][h];
            }
            __syncthreads();
            for (int i = threadIdx.x; i < TILE * HALF; i += THREADS) {
                const int row = i / HALF, pair = i % HALF, position = first + row;
                if (position >= LEN) continue;
                const float2 turn = angles[(i64)position * HALF + pair];
                const float x = tile[row * ROW + pair], y = tile[row * ROW + pair + HALF];
                T* at = to + (i64)position * STEP + pair;
                at[0] = narrow<T>(x * turn.x + y * turn.y);
                at[HALF] = narrow<T>(y * turn.x - x * turn.y);
            }
        } else {
            float one[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) one[i] = 1.0f;
            put<STEP>(to, first, f, one);
        }
    }

    // Whether a query attends to a key; false if one of them is beyond the last position.
    DEV bool sees(int query, int key) { return query < LEN && key < LEN && (!CAUSAL || key <= query); }

    // The dropout factors of the probabilities of one query and this thread's keys from `first_key` on. `row` is the
    // number of the query among those of all samples and heads.
    DEV void dropped(const i64* counter, i64 row, int first_key, float (&by)[EACH]) {
        if constexpr (DROPS) {
            constexpr int GROUPS = ceil_div(LEN, 64);
            const u32 block = (u32)(16 * (row * GROUPS + first_key / 64) + tx());
            const Words words = dropout_words(counter[0], STREAM, counter[1], block);
            const int before = first_key % 64 / 16;
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const int word = before + j;
                const u32 drawn = word < 2 ? (word == 0 ? words.w[0] : words.w[1])
                                           : (word == 2 ? words.w[2] : words.w[3]);
                by[j] = drawn >= THRESHOLD ? __uint_as_float(KEPT) : 0.0f;
            }
        } else {
#pragma unroll
            for (int j = 0; j < EACH; ++j) by[j] = 1.0f;
        }
    }
};

// The maximum and the sum over the 16 threads that share rows.
DEV float row_max(float v) {
#pragma unroll
    for (int mask = 8; mask > 0; mask >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, mask));
    return v;
}
DEV float row_total(float v) { return warp_reduce<Sum, 16>(v); }

// y [BATCH, LEN, WIDTH] (T) and, if bound, lse [BATCH, HEADS, LEN] (float), the logarithm of the sum of the
// exponentials of a query's scores. With rotary embedding, a first phase writes the angles to work.
template <class A> struct Attention {
    using Slots = slots::attention;
    using T = typename A::T;
    static constexpr int PHASES = A::ROTARY ? 2 : 1, THREADS = A::THREADS, EACH = A::EACH, TILE = A::TILE, D = A::D;
    static constexpr i64 WORK = 8 * A::ANGLES;
    static constexpr int blocks(int phase) {
        return A::ROTARY && phase == 0 ? A::ANGLE_BLOCKS : A::BATCH * A::HEADS * A::TILES;
    }
    static constexpr int smem(int phase) {
        return A::ROTARY && phase == 0 ? 0 : 4 * (3 * A::FEATURES + TILE * A::SCORES);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE + 1 < PHASES) A::template write_angles<THREADS>(a.at<float2>(Slots::WORK), block);
        else attend(a, block, (float*)smem);
    }
    static __device__ __forceinline__ void attend(const Args& a, int block, float* smem) {
        // Late queries attend to the most keys and are processed first.
        const int tile = A::TILES - 1 - block % A::TILES, of = block / A::TILES, head = of % A::HEADS;
        const int sample = of / A::HEADS, kv = head / A::GROUP, first = tile * TILE;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * A::LEN * A::PACKED;
        const float2* angles = a.at<float2>(Slots::WORK);
        const i64* counter = a.at<i64>(Slots::COUNTER);
        float *q = smem, *k = q + A::FEATURES, *v = k + A::FEATURES, *p = v + A::FEATURES;
        A::template fetch<A::PACKED, A::ROTARY>(q, qkv + head * D, first, angles);
        float out[EACH][A::HOLD], most[EACH], sum[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            most[i] = __int_as_float(0xff800000), sum[i] = 0.0f;
#pragma unroll
            for (int h = 0; h < A::HOLD; ++h) out[i][h] = 0.0f;
        }
        const int past = A::CAUSAL ? tile + 1 : A::TILES;
#pragma unroll 1
        for (int t = 0; t < past; ++t) {
            A::next_keys(k, v, qkv, kv, t * TILE, angles);
            float s[EACH][EACH];
            A::products(q, k, s);
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int query = first + A::ty() * EACH + i;
                float top = __int_as_float(0xff800000);
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    const int key = t * TILE + A::tx() + 16 * j;
                    // Queries beyond the last position attend to existing keys, so that none of their values is
                    // infinite.
                    const bool seen = key < A::LEN && (!A::CAUSAL || key <= query);
                    s[i][j] = seen ? s[i][j] * A::scale() : __int_as_float(0xff800000);
                    top = fmaxf(top, s[i][j]);
                }
                const float now = fmaxf(most[i], row_max(top)), fade = expf(most[i] - now);
                float by[EACH], added = 0.0f;
                A::dropped(counter, (i64)of * A::LEN + query, t * TILE, by);
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    const float term = expf(s[i][j] - now);
                    added += term;
                    s[i][j] = term * by[j];
                }
                sum[i] = sum[i] * fade + row_total(added);
                most[i] = now;
#pragma unroll
                for (int h = 0; h < A::HOLD; ++h) out[i][h] *= fade;
            }
            A::keep(p, s);
            __syncthreads();
            A::add_product(p, v, out);
        }
        T* y = a.at<T>(Slots::Y) + (i64)sample * A::LEN * A::WIDTH + head * D;
        A::template put<A::WIDTH>(y, first, out, sum);
        if (!a.has(Slots::LSE) || A::tx() != 0) return;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int query = first + A::ty() * EACH + i;
            if (query < A::LEN) a.at<float>(Slots::LSE)[(i64)of * A::LEN + query] = most[i] + logf(sum[i]);
        }
    }
};

// dx (like qkv) from dy (like y). The first phase writes the angles, with rotary embedding, and the sum of dy y for
// each query. In the second phase, a block has one tile of keys and values and loops over the queries that attend to
// them, or has one tile of queries and loops over their keys. Probabilities are recomputed from lse.
//
// If a head has few tiles and no rotary embedding, there is one phase without work: each block computes the sums of its
// queries itself.
template <class A> struct AttentionBwd {
    using Slots = slots::attention_bwd;
    using T = typename A::T;
    static constexpr bool SUMS = A::TILES <= 4 && !A::ROTARY;
    static constexpr int PHASES = SUMS ? 1 : 2, THREADS = A::THREADS, EACH = A::EACH, TILE = A::TILE, D = A::D;
    static constexpr int ROWS = A::BATCH * A::HEADS * A::LEN, SUM_BLOCKS = ceil_div(ROWS, THREADS / 32);
    static constexpr int KEY_BLOCKS = A::BATCH * A::KV * A::TILES;
    static constexpr i64 WORK = SUMS ? 0 : 8 * A::ANGLES + 4ll * ROWS;
    static constexpr int blocks(int phase) {
        return PHASES == 2 && phase == 0 ? A::ANGLE_BLOCKS + SUM_BLOCKS : KEY_BLOCKS + A::BATCH * A::HEADS * A::TILES;
    }
    static constexpr int smem(int phase) {
        return PHASES == 2 && phase == 0 ? 0 : 4 * (4 * A::FEATURES + TILE * A::SCORES + (SUMS ? TILE : 0));
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE + 1 < PHASES) {
            if (block < A::ANGLE_BLOCKS) A::template write_angles<THREADS>(a.at<float2>(Slots::WORK), block);
            else add_rows(a, block - A::ANGLE_BLOCKS);
        } else if (block < KEY_BLOCKS) of_keys(a, block, (float*)smem);
        else of_queries(a, block - KEY_BLOCKS, (float*)smem);
    }

    DEV float* row_sums(const Args& a) { return (float*)(a.at<float2>(Slots::WORK) + A::ANGLES); }
    // A warp adds up a row.
    DEV void add_rows(const Args& a, int block) {
        const int row = block * (THREADS / 32) + threadIdx.x / 32;
        if (row >= ROWS) return;
        const int of = row / A::LEN, position = row % A::LEN;
        const i64 at = ((i64)(of / A::HEADS) * A::LEN + position) * A::WIDTH + of % A::HEADS * D;
        float sum = 0.0f;
        for (int col = threadIdx.x % 32; col < D; col += 32)
            sum += to_float(a.at<T>(Slots::DY)[at + col]) * to_float(a.at<T>(Slots::Y)[at + col]);
        sum = warp_reduce<Sum>(sum);
        if (threadIdx.x % 32 == 0) row_sums(a)[row] = sum;
    }

    // The sums of a tile of queries of sample `of` / HEADS and head `of` % HEADS, from its tile of dy, in shared memory.
    // LANES neighbouring threads add up a row; `read` is called before the barrier behind which the tile is
    // there, and `finish` is followed by another one.
    struct TileSums {
        static constexpr int LANES = THREADS / TILE, HELD = ceil_div(D, LANES);
        float y[HELD];
        DEV int row() { return threadIdx.x / LANES; }
        DEV int column(int i) { return threadIdx.x % LANES + i * LANES; }
        __device__ __forceinline__ void read(const Args& a, int of, int first) {
            const int position = min_i(first + row(), A::LEN - 1);
            const T* from = a.at<T>(Slots::Y) + ((i64)(of / A::HEADS) * A::LEN + position) * A::WIDTH + of % A::HEADS * D;
#pragma unroll
            for (int i = 0; i < HELD; ++i) y[i] = column(i) < D ? to_float(from[column(i)]) : 0.0f;
        }
        __device__ __forceinline__ void finish(const float* dy, float* sums) const {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < HELD; ++i)
                if (column(i) < D) sum += dy[row() * A::ROW + column(i)] * y[i];
            sum = warp_reduce<Sum, LANES>(sum);
            if (threadIdx.x % LANES == 0) sums[row()] = sum;
        }
    };

    // Where the sums of a sample and head are: behind the scores in shared memory, or in work.
    DEV const float* sums_of(const Args& a, int of, const float* dy, const TileSums& own, float* scores) {
        if constexpr (!SUMS) return row_sums(a) + (i64)of * A::LEN;
        float* sums = scores + TILE * A::SCORES;
        own.finish(dy, sums);
        return sums;
    }

    // From the scores and the products of dy and values of a tile: the weights of the values in `s`, and the gradient
    // of the unscaled scores in `d`. `sums` are those of the queries of this sample and head, or of the tile.
    DEV void differentiate(const Args& a, int of, const float* sums, int first_query, int first_key,
        float (&s)[EACH][EACH], float (&d)[EACH][EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int query = first_query + A::ty() * EACH + i;
            const int position = min_i(query, A::LEN - 1);
            const i64 row = (i64)of * A::LEN + position;
            const float lse = a.at<float>(Slots::LSE)[row], sum = sums[SUMS ? position - first_query : position];
            float by[EACH];
            A::dropped(a.at<i64>(Slots::COUNTER), row, first_key, by);
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const bool seen = A::sees(query, first_key + A::tx() + 16 * j);
                const float p = seen ? expf(s[i][j] * A::scale() - lse) : 0.0f;
                d[i][j] = seen ? p * (d[i][j] * by[j] - sum) * A::scale() : 0.0f;
                s[i][j] = p * by[j];
            }
        }
    }

    static __device__ __forceinline__ void of_keys(const Args& a, int block, float* smem) {
        // The most queries attend to early keys, which are processed first.
        const int tile = block % A::TILES, sample = block / A::TILES / A::KV, kv = block / A::TILES % A::KV;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * A::LEN * A::PACKED;
        const T* dy = a.at<T>(Slots::DY) + (i64)sample * A::LEN * A::WIDTH;
        const float2* angles = a.at<float2>(Slots::WORK);
        float *k = smem, *v = k + A::FEATURES, *q = v + A::FEATURES, *g = q + A::FEATURES, *p = g + A::FEATURES;
        A::fetch_keys(k, v, qkv, kv, tile * TILE, angles);
        float dk[EACH][A::HOLD], dv[EACH][A::HOLD];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int h = 0; h < A::HOLD; ++h) dk[i][h] = dv[i][h] = 0.0f;
        }
        const int begin_tile = A::CAUSAL ? tile : 0, each = A::TILES - begin_tile;
#pragma unroll 1
        for (int turn = 0; turn < A::GROUP * each; ++turn) {
            const int head = kv * A::GROUP + turn / each, t = begin_tile + turn % each;
            __syncthreads();
            A::template fetch<A::PACKED, A::ROTARY>(q, qkv + head * D, t * TILE, angles);
            A::template fetch<A::WIDTH, false>(g, dy + head * D, t * TILE, angles);
            const int of = sample * A::HEADS + head;
            TileSums own;
            if constexpr (SUMS) own.read(a, of, t * TILE);
            __syncthreads();
            const float* sums = sums_of(a, of, g, own, p);
            float s[EACH][EACH], d[EACH][EACH];
            A::products(q, k, s);
            A::products(g, v, d);
            if constexpr (SUMS) __syncthreads();
            differentiate(a, of, sums, t * TILE, tile * TILE, s, d);
            A::keep_transposed(p, s);
            __syncthreads();
            A::add_product(p, g, dv);
            __syncthreads();
            A::keep_transposed(p, d);
            __syncthreads();
            A::add_product(p, q, dk);
        }
        T* dx = a.at<T>(Slots::DX) + (i64)sample * A::LEN * A::PACKED;
        A::template put_gradient<A::PACKED, A::ROTARY>(dx + (A::HEADS + kv) * D, tile * TILE, dk, angles, q);
        A::template put_gradient<A::PACKED, false>(
            dx + (A::HEADS + A::KV + kv) * D, tile * TILE, dv, angles, q);
    }

    static __device__ __forceinline__ void of_queries(const Args& a, int block, float* smem) {
        const int tile = A::TILES - 1 - block % A::TILES, of = block / A::TILES, head = of % A::HEADS;
        const int sample = of / A::HEADS, kv = head / A::GROUP;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * A::LEN * A::PACKED;
        const T* dy = a.at<T>(Slots::DY) + (i64)sample * A::LEN * A::WIDTH;
        const float2* angles = a.at<float2>(Slots::WORK);
        float *k = smem, *v = k + A::FEATURES, *q = v + A::FEATURES, *g = q + A::FEATURES, *p = g + A::FEATURES;
        A::template fetch<A::PACKED, A::ROTARY>(q, qkv + head * D, tile * TILE, angles);
        A::template fetch<A::WIDTH, false>(g, dy + head * D, tile * TILE, angles);
        TileSums own;
        if constexpr (SUMS) own.read(a, of, tile * TILE);
        float dq[EACH][A::HOLD];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int h = 0; h < A::HOLD; ++h) dq[i][h] = 0.0f;
        }
        const int past = A::CAUSAL ? tile + 1 : A::TILES;
#pragma unroll 1
        for (int t = 0; t < past; ++t) {
            A::next_keys(k, v, qkv, kv, t * TILE, angles);
            const float* sums = sums_of(a, of, g, own, p);
            float s[EACH][EACH], d[EACH][EACH];
            A::products(q, k, s);
            A::products(g, v, d);
            if constexpr (SUMS) __syncthreads();
            differentiate(a, of, sums, tile * TILE, t * TILE, s, d);
            A::keep(p, d);
            __syncthreads();
            A::add_product(p, k, dq);
        }
        T* dx = a.at<T>(Slots::DX) + (i64)sample * A::LEN * A::PACKED;
        A::template put_gradient<A::PACKED, A::ROTARY>(dx + head * D, tile * TILE, dq, angles, k);
    }
};
