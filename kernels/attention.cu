// Attention and its gradient, without storing a whole row of scores: tiles of queries are multiplied by tiles of keys
// in shared memory, and the softmax is rescaled from tile to tile (Dao and others, FlashAttention, 2022). Everything is
// computed in floats, whatever T is. Deterministic: separate blocks sum the gradient of queries and that of keys and
// values, without atomics.

// The samples, positions, heads of queries, and heads of keys and values of an attention: the numbers 0 to 3. A kernel
// is compiled for all of them or for none.
template <i64 BATCH, i64 LEN, i64 HEADS, i64 KV> struct AttentionSizes {
    static constexpr int batch = (int)BATCH, len = (int)LEN, heads = (int)HEADS, kv = (int)KV;
    __device__ __forceinline__ constexpr AttentionSizes() {}
    __device__ __forceinline__ explicit AttentionSizes(const Args&) {}
};
template <> struct AttentionSizes<ANY, ANY, ANY, ANY> {
    int batch = 0, len = 0, heads = 0, kv = 0;
    __device__ __forceinline__ constexpr AttentionSizes() {}
    __device__ __forceinline__ explicit AttentionSizes(const Args& a)
        : batch((int)Number<ANY, 0>(a)), len((int)Number<ANY, 1>(a)), heads((int)Number<ANY, 2>(a)),
          kv((int)Number<ANY, 3>(a)) {}
};

// The features of a head: number 7, or a constant.
template <i64 DIM> struct AttentionFeatures {
    static constexpr int dim = (int)DIM;
    __device__ __forceinline__ constexpr AttentionFeatures() {}
    __device__ __forceinline__ explicit AttentionFeatures(const Args&) {}
};
template <> struct AttentionFeatures<ANY> {
    int dim = 0;
    __device__ __forceinline__ constexpr AttentionFeatures() {}
    __device__ __forceinline__ explicit AttentionFeatures(const Args& a) : dim((int)Number<ANY, 7>(a)) {}
};

// The attention of one layer. qkv [BATCH, LEN, packed] (T) has the queries of all HEADS heads, then the keys and then
// the values of all KV heads; consecutive query heads share one key and value head. SCALE holds the bits of the float
// factor of the scores. If THRESHOLD is not zero, probabilities whose random number is below it are dropped, and the
// others are multiplied by the float with the bits KEPT. BATCH, LEN, HEADS, KV, THRESHOLD, KEPT and STREAM are the
// numbers 0 to 6; a general member without dropout is compiled for the last three, as zeros. D is the number of
// features of a head; if SCALE is 0, which no factor is, there are at most D, and their number and the factor are
// numbers 7 and 8.
//
// A tile is TILE positions of one head. Thread (ty, tx) of 16 by 16 computes rows ty * EACH + i and columns tx + 16 j
// of a tile of scores, and columns (tx + 16 j) CV + c of the same rows of a tile of features.
template <class T_, i64 BATCH, i64 LEN, i64 HEADS, i64 KV, int D_, bool CAUSAL_, bool ROTARY_, u32 SCALE,
    i64 THRESHOLD, i64 KEPT, i64 STREAM, int TILE_>
struct Attend {
    using T = T_;
    static constexpr int D = D_, TILE = TILE_, THREADS = 256, EACH = TILE / 16;
    static constexpr bool CAUSAL = CAUSAL_, ROTARY = ROTARY_, DROPS = THRESHOLD != 0, READS_DIM = SCALE == 0;
    // Floats of a row of features and of a row of scores in shared memory, padded so that accesses of 16 bytes to
    // consecutive rows use different banks.
    static constexpr int QUADS = ceil_div(D, 4), ROW = 4 * QUADS + 4, SCORES = TILE + 4;
    static constexpr int FEATURES = TILE * ROW;
    static constexpr int CV = D % 64 == 0 ? 4 : D % 32 == 0 ? 2 : 1, CJ = ceil_div(D, 16 * CV), HOLD = CV * CJ;

    // The sizes of the layer, and what follows from them; without arguments those that the kernel is compiled for.
    struct Sizes : AttentionSizes<BATCH, LEN, HEADS, KV>, AttentionFeatures<READS_DIM ? (i64)ANY : D> {
        using Own = AttentionSizes<BATCH, LEN, HEADS, KV>;
        using Features = AttentionFeatures<READS_DIM ? (i64)ANY : D>;
        using Own::batch, Own::len, Own::heads, Own::kv, Features::dim;
        __device__ __forceinline__ constexpr Sizes() {}
        __device__ __forceinline__ explicit Sizes(const Args& a) : Own(a), Features(a) {}
        // Pairs of features.
        __device__ __forceinline__ constexpr int half() const { return dim / 2; }
        // Elements of a position of qkv and of y.
        __device__ __forceinline__ constexpr int packed() const { return (heads + 2 * kv) * dim; }
        __device__ __forceinline__ constexpr int width() const { return heads * dim; }
        // Query heads that share a key and value head.
        __device__ __forceinline__ constexpr int group() const { return heads / kv; }
        __device__ __forceinline__ constexpr int tiles_of(int positions) const { return ceil_div(len, positions); }
        __device__ __forceinline__ constexpr int tiles() const { return tiles_of(TILE); }
        __device__ __forceinline__ constexpr int rows() const { return batch * heads * len; }
        // Cosine and sine of every position and pair of features, and the blocks of so many threads that compute them.
        __device__ __forceinline__ constexpr i64 angles() const { return ROTARY ? (i64)len * half() : 0; }
        __device__ __forceinline__ constexpr int angle_blocks(int threads) const { return ceil_div(angles(), threads); }
    };

    // The factor of the scores; without arguments the one that the kernel is compiled for.
    DEV float scale() { return __uint_as_float(SCALE); }
    DEV float scale(const Args& a) { return READS_DIM ? __uint_as_float((u32)Number<ANY, 8>(a)) : scale(); }
    DEV u32 threshold(const Args& a) { return (u32)Number<THRESHOLD, 4>(a); }
    // The factor of probabilities that are not dropped.
    DEV float kept(const Args& a) { return DROPS ? __uint_as_float((u32)Number<KEPT, 5>(a)) : 1.0f; }
    // The gradient of a probability, times its dropout factor, less the sum over the row.
    DEV float less(float d, float by, float sum) { return DROPS ? fmaf(d, by, -sum) : d - sum; }
    DEV u32 stream(const Args& a) { return (u32)Number<STREAM, 6>(a); }
    DEV int ty() { return threadIdx.x / 16; }
    DEV int tx() { return threadIdx.x % 16; }
    // The column of a feature in registers; columns beyond the last feature do not exist.
    DEV int column(int h) { return (tx() + 16 * (h / CV)) * CV + h % CV; }

    // Angles are computed in double, because positions may be large; one for each thread of a block.
    template <int EACH_BLOCK> DEV void write_angles(Sizes size, float2* angles, int block) {
        const i64 at = (i64)block * EACH_BLOCK + threadIdx.x;
        if (at >= size.angles()) return;
        double sine, cosine;
        // ln 10000.
        const int half = max_i(size.half(), 1);
        sincos((double)(at / half) * exp(-9.210340371976184 * 2.0 * (double)(at % half) / size.dim), &sine, &cosine);
        angles[at] = float2{(float)cosine, (float)sine};
    }

    // Copies a tile of features from position `first` on, of rows with a stride of `step` elements, as floats; zeros
    // for positions beyond the last. TURNED: applies the rotary embedding (pairs are rotated by their angles).
    template <bool TURNED>
    DEV void fetch(Sizes size, float* to, const T* from, int step, int first, const float2* angles) {
        if constexpr (TURNED) {
            const int half = size.half();
            for (int i = threadIdx.x; i < TILE * half; i += THREADS) {
                const int row = i / half, pair = i % half, position = first + row;
                float x = 0.0f, y = 0.0f;
                if (position < size.len) {
                    const float2 turn = angles[(i64)position * half + pair];
                    const T* at = from + (i64)position * step + pair;
                    const float u = to_float(at[0]), v = to_float(at[half]);
                    x = fmaf(u, turn.x, -v * turn.y);
                    y = fmaf(u, turn.y, v * turn.x);
                }
                to[row * ROW + pair] = x;
                to[row * ROW + pair + half] = y;
            }
        } else {
            constexpr int V = READS_DIM ? 1 : vec_width<T>(D);
            const int groups = size.dim / V;
            for (int i = threadIdx.x; i < TILE * groups; i += THREADS) {
                const int row = i / groups, col = i % groups * V;
                Vec<T, V> found{};
                if (first + row < size.len) found = load<T, V>(from + (i64)(first + row) * step + col);
#pragma unroll
                for (int j = 0; j < V; ++j) to[row * ROW + col + j] = to_float(found.v[j]);
            }
        }
        if constexpr (READS_DIM || D % 4 != 0) {
            const int dim = size.dim, pad = 4 * QUADS - dim;
            for (int i = threadIdx.x; i < TILE * pad; i += THREADS) to[i / pad * ROW + dim + i % pad] = 0.0f;
        }
    }
    // Copies a tile of the keys and one of the values of a head; with rotary embedding, keys are rotated.
    DEV void fetch_keys(Sizes size, float* k, float* v, const T* qkv, int kv, int first, const float2* angles) {
        fetch<ROTARY>(size, k, qkv + (size.heads + kv) * size.dim, size.packed(), first, angles);
        fetch<false>(size, v, qkv + (size.heads + size.kv + kv) * size.dim, size.packed(), first, angles);
    }
    // The same between barriers: after all threads have used the previous tiles, and visible to all of them.
    DEV void next_keys(Sizes size, float* k, float* v, const T* qkv, int kv, int first, const float2* angles) {
        __syncthreads();
        fetch_keys(size, k, v, qkv, kv, first, angles);
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
                    for (int k = 0; k < 4; ++k) s[i][j] = fmaf(rows[i].v[k], cols[j].v[k], s[i][j]);
                }
            }
        }
    }

    // Whether this thread's warp has rows of the tile from position `first` on, or shares a group of four rows with a
    // warp that has some. The others compute nothing.
    DEV bool has_rows(Sizes size, int first) {
        return size.len % TILE == 0 || first + (int)threadIdx.x / 32 * 2 * EACH / 4 * 4 < size.len;
    }
    // The groups of four positions from `first` on that a tile has.
    DEV int quads(Sizes size, int first) {
        return size.len % TILE == 0 ? TILE / 4 : min(TILE / 4, ceil_div(size.len - first, 4));
    }
    // out += p f of a tile of scores and one of features, over so many groups of four positions.
    DEV void add_product(const float* p, const float* f, int quads, float (&out)[EACH][HOLD]) {
#pragma unroll 2
        for (int quad = 0; quad < quads; ++quad) {
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
                        for (int i = 0; i < EACH; ++i) {
                            float& sum = out[i][j * CV + c];
                            sum = fmaf(rows[i].v[k], features.v[c], sum);
                        }
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

    // Writes a tile of features from position `first` on, each row divided by `over`, to rows with a stride of `step`
    // elements.
    DEV void put(Sizes size, T* to, int step, int first, const float (&f)[EACH][HOLD],
        const float (&over)[EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int position = first + ty() * EACH + i;
            if (position >= size.len) continue;
#pragma unroll
            for (int h = 0; h < HOLD; ++h)
                if (column(h) < size.dim) to[(i64)position * step + column(h)] = narrow<T>(f[i][h] / over[i]);
        }
    }
    // The same for a gradient; if TURNED, pairs are rotated back, through a tile of shared memory that no other thread
    // uses.
    template <bool TURNED>
    DEV void put_gradient(Sizes size, T* to, int first, const float (&f)[EACH][HOLD], const float2* angles,
        float* tile) {
        if constexpr (TURNED) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
#pragma unroll
                for (int h = 0; h < HOLD; ++h)
                    if (column(h) < size.dim) tile[(ty() * EACH + i) * ROW + column(h)] = f[i][h];
            }
            __syncthreads();
            const int half = size.half();
            for (int i = threadIdx.x; i < TILE * half; i += THREADS) {
                const int row = i / half, pair = i % half, position = first + row;
                if (position >= size.len) continue;
                const float2 turn = angles[(i64)position * half + pair];
                const float x = tile[row * ROW + pair], y = tile[row * ROW + pair + half];
                T* at = to + (i64)position * size.packed() + pair;
                at[0] = narrow<T>(fmaf(x, turn.x, y * turn.y));
                at[half] = narrow<T>(fmaf(y, turn.x, -x * turn.y));
            }
        } else {
            float one[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) one[i] = 1.0f;
            put(size, to, size.packed(), first, f, one);
        }
    }

    // Whether a query attends to a key; false if one of them is beyond the last position.
    DEV bool sees(Sizes size, int query, int key) {
        return query < size.len && key < size.len && (!CAUSAL || key <= query);
    }

    // The dropout factors of the probabilities of one query and this thread's keys from `first_key` on. `row` is the
    // number of the query among those of all samples and heads.
    DEV void dropped(
        const Args& a, Sizes size, const i64* counter, i64 row, int first_key, float (&by)[EACH]) {
        if constexpr (DROPS) {
            const u32 block = (u32)(16 * (row * size.tiles_of(64) + first_key / 64) + tx());
            const Words words = dropout_words(counter[0], stream(a), counter[1], block);
            const int before = first_key % 64 / 16;
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const int word = before + j;
                const u32 drawn = word < 2 ? (word == 0 ? words.w[0] : words.w[1])
                                           : (word == 2 ? words.w[2] : words.w[3]);
                by[j] = drawn >= threshold(a) ? kept(a) : 0.0f;
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

// y [BATCH, LEN, width] (T) and, if bound, lse [BATCH, HEADS, LEN] (float), the logarithm of the sum of the
// exponentials of a query's scores. With rotary embedding, a first phase writes the angles to work.
template <class A> struct Attention {
    using Slots = slots::attention;
    using T = typename A::T;
    static constexpr int PHASES = A::ROTARY ? 2 : 1, THREADS = A::THREADS, EACH = A::EACH, TILE = A::TILE;
    using Sizes = typename A::Sizes;
    static constexpr i64 WORK = 8 * Sizes().angles();
    static constexpr int blocks_of(Sizes size, int phase) {
        return A::ROTARY && phase == 0 ? size.angle_blocks(THREADS) : size.batch * size.heads * size.tiles();
    }
    static constexpr int blocks(int phase) { return blocks_of(Sizes(), phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(Sizes(a), phase); }
    static constexpr int smem(int phase) {
        return A::ROTARY && phase == 0 ? 0 : 4 * (3 * A::FEATURES + TILE * A::SCORES);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Sizes size(a);
        if constexpr (PHASE + 1 < PHASES) A::template write_angles<THREADS>(size, a.at<float2>(Slots::WORK), block);
        else attend(a, size, block, (float*)smem);
    }
    static __device__ __forceinline__ void attend(const Args& a, Sizes size, int block, float* smem) {
        const int tiles = size.tiles();
        // Late queries attend to the most keys and are processed first.
        const int tile = tiles - 1 - block % tiles, of = block / tiles, head = of % size.heads;
        const int sample = of / size.heads, kv = head / size.group(), first = tile * TILE;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * size.len * size.packed();
        const float2* angles = a.at<float2>(Slots::WORK);
        const i64* counter = a.at<i64>(Slots::COUNTER);
        float *q = smem, *k = q + A::FEATURES, *v = k + A::FEATURES, *p = v + A::FEATURES;
        A::template fetch<A::ROTARY>(size, q, qkv + head * size.dim, size.packed(), first, angles);
        float out[EACH][A::HOLD], most[EACH], sum[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            most[i] = __int_as_float(0xff800000), sum[i] = 0.0f;
#pragma unroll
            for (int h = 0; h < A::HOLD; ++h) out[i][h] = 0.0f;
        }
        const int past = A::CAUSAL ? tile + 1 : tiles;
        const bool has_rows = A::has_rows(size, first);
#pragma unroll 1
        for (int t = 0; t < past; ++t) {
            A::next_keys(size, k, v, qkv, kv, t * TILE, angles);
            float s[EACH][EACH];
            if (has_rows) {
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
                        const bool seen = key < size.len && (!A::CAUSAL || key <= query);
                        s[i][j] = seen ? s[i][j] * A::scale(a) : __int_as_float(0xff800000);
                        top = fmaxf(top, s[i][j]);
                    }
                    const float now = fmaxf(most[i], row_max(top)), fade = expf(most[i] - now);
                    float by[EACH], added = 0.0f;
                    A::dropped(a, size, counter, (i64)of * size.len + query, t * TILE, by);
#pragma unroll
                    for (int j = 0; j < EACH; ++j) {
                        const float term = expf(s[i][j] - now);
                        added += term;
                        s[i][j] = term * by[j];
                    }
                    sum[i] = fmaf(sum[i], fade, row_total(added));
                    most[i] = now;
#pragma unroll
                    for (int h = 0; h < A::HOLD; ++h) out[i][h] *= fade;
                }
                A::keep(p, s);
            }
            __syncthreads();
            if (has_rows) A::add_product(p, v, A::quads(size, t * TILE), out);
        }
        if (!has_rows) return;
        T* y = a.at<T>(Slots::Y) + (i64)sample * size.len * size.width() + head * size.dim;
        A::put(size, y, size.width(), first, out, sum);
        if (!a.has(Slots::LSE) || A::tx() != 0) return;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int query = first + A::ty() * EACH + i;
            if (query < size.len) a.at<float>(Slots::LSE)[(i64)of * size.len + query] = most[i] + logf(sum[i]);
        }
    }
};

// dx (like qkv) from dy (like y). The first phase writes the angles, with rotary embedding, and the sum of dy y for
// each query. In the second phase, a block has one tile of keys and values and loops over the queries that attend to
// them, or has one tile of queries and loops over their keys. Probabilities are recomputed from lse.
//
// If a head has few tiles and no rotary embedding, there is one phase without work: each block computes the sums of its
// queries itself (SUMS). A general member is compiled for one of the two.
template <class A, bool SUMS = typename A::Sizes().tiles() <= 4 && !A::ROTARY> struct AttentionBwd {
    using Slots = slots::attention_bwd;
    using T = typename A::T;
    using Sizes = typename A::Sizes;
    static constexpr int PHASES = SUMS ? 1 : 2, THREADS = A::THREADS, EACH = A::EACH, TILE = A::TILE;
    static constexpr i64 WORK = SUMS ? 0 : 8 * Sizes().angles() + 4ll * Sizes().rows();
    static constexpr int angle_blocks(Sizes size) { return size.angle_blocks(THREADS); }
    static constexpr int key_blocks(Sizes size) { return size.batch * size.kv * size.tiles(); }
    static constexpr int blocks_of(Sizes size, int phase) {
        if (PHASES == 2 && phase == 0) return angle_blocks(size) + ceil_div(size.rows(), THREADS / 32);
        return key_blocks(size) + size.batch * size.heads * size.tiles();
    }
    static constexpr int blocks(int phase) { return blocks_of(Sizes(), phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(Sizes(a), phase); }
    static constexpr int smem(int phase) {
        return PHASES == 2 && phase == 0 ? 0 : 4 * (4 * A::FEATURES + TILE * A::SCORES + (SUMS ? TILE : 0));
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Sizes size(a);
        if constexpr (PHASE + 1 < PHASES) {
            const int before = angle_blocks(size);
            if (block < before) A::template write_angles<THREADS>(size, a.at<float2>(Slots::WORK), block);
            else add_rows(a, size, block - before);
        } else if (block < key_blocks(size)) of_keys(a, size, block, (float*)smem);
        else of_queries(a, size, block - key_blocks(size), (float*)smem);
    }

    DEV float* row_sums(const Args& a, Sizes size) {
        return (float*)(a.at<float2>(Slots::WORK) + size.angles());
    }
    // A warp adds up a row.
    DEV void add_rows(const Args& a, Sizes size, int block) {
        const int row = block * (THREADS / 32) + threadIdx.x / 32;
        if (row >= size.rows()) return;
        const int of = row / size.len, position = row % size.len;
        const i64 at = ((i64)(of / size.heads) * size.len + position) * size.width() + of % size.heads * size.dim;
        float sum = 0.0f;
        for (int col = threadIdx.x % 32; col < size.dim; col += 32)
            sum = fmaf(to_float(a.at<T>(Slots::DY)[at + col]), to_float(a.at<T>(Slots::Y)[at + col]), sum);
        sum = warp_reduce<Sum>(sum);
        if (threadIdx.x % 32 == 0) row_sums(a, size)[row] = sum;
    }

    // The sums of a tile of queries of sample `of` / heads and head `of` % heads, from its tile of dy in shared memory.
    // LANES neighbouring threads add up a row; `read` is called before the barrier after which the tile is complete,
    // and `finish` is followed by another barrier.
    struct TileSums {
        static constexpr int LANES = THREADS / TILE, HELD = ceil_div(A::D, LANES);
        float y[HELD];
        DEV int row() { return threadIdx.x / LANES; }
        DEV int column(int i) { return threadIdx.x % LANES + i * LANES; }
        __device__ __forceinline__ void read(const Args& a, Sizes size, int of, int first) {
            const int position = min_i(first + row(), size.len - 1);
            const i64 place = (i64)(of / size.heads) * size.len + position;
            const T* from = a.at<T>(Slots::Y) + place * size.width() + of % size.heads * size.dim;
#pragma unroll
            for (int i = 0; i < HELD; ++i) y[i] = column(i) < size.dim ? to_float(from[column(i)]) : 0.0f;
        }
        __device__ __forceinline__ void finish(Sizes size, const float* dy, float* sums) const {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < HELD; ++i)
                if (column(i) < size.dim) sum = fmaf(dy[row() * A::ROW + column(i)], y[i], sum);
            sum = warp_reduce<Sum, LANES>(sum);
            if (threadIdx.x % LANES == 0) sums[row()] = sum;
        }
    };

    // The location of the sums of a sample and head: after the scores in shared memory, or in work.
    DEV const float* sums_of(
        const Args& a, Sizes size, int of, const float* dy, const TileSums& own, float* scores) {
        if constexpr (!SUMS) return row_sums(a, size) + (i64)of * size.len;
        float* sums = scores + TILE * A::SCORES;
        own.finish(size, dy, sums);
        return sums;
    }

    // From the scores and the products of dy and values of a tile: the weights of the values in `s`, and the gradient
    // of the unscaled scores in `d`. `sums` are those of the queries of this sample and head, or of the tile.
    DEV void differentiate(const Args& a, Sizes size, int of, const float* sums, int first_query, int first_key,
        float (&s)[EACH][EACH], float (&d)[EACH][EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int query = first_query + A::ty() * EACH + i;
            const int position = min_i(query, size.len - 1);
            const i64 row = (i64)of * size.len + position;
            const float lse = a.at<float>(Slots::LSE)[row], sum = sums[SUMS ? position - first_query : position];
            float by[EACH];
            A::dropped(a, size, a.at<i64>(Slots::COUNTER), row, first_key, by);
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const bool seen = A::sees(size, query, first_key + A::tx() + 16 * j);
                const float p = seen ? expf(s[i][j] * A::scale(a) - lse) : 0.0f;
                d[i][j] = seen ? p * A::less(d[i][j], by[j], sum) * A::scale(a) : 0.0f;
                s[i][j] = p * by[j];
            }
        }
    }

    static __device__ __forceinline__ void of_keys(const Args& a, Sizes size, int block, float* smem) {
        const int tiles = size.tiles();
        // The most queries attend to early keys, which are processed first.
        const int tile = block % tiles, sample = block / tiles / size.kv, kv = block / tiles % size.kv;
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * size.len * size.packed();
        const T* dy = a.at<T>(Slots::DY) + (i64)sample * size.len * size.width();
        const float2* angles = a.at<float2>(Slots::WORK);
        float *k = smem, *v = k + A::FEATURES, *q = v + A::FEATURES, *g = q + A::FEATURES, *p = g + A::FEATURES;
        A::fetch_keys(size, k, v, qkv, kv, tile * TILE, angles);
        float dk[EACH][A::HOLD], dv[EACH][A::HOLD];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int h = 0; h < A::HOLD; ++h) dk[i][h] = dv[i][h] = 0.0f;
        }
        const int begin_tile = A::CAUSAL ? tile : 0, each = tiles - begin_tile, group = size.group();
        const bool has_keys = A::has_rows(size, tile * TILE);
#pragma unroll 1
        for (int turn = 0; turn < group * each; ++turn) {
            const int head = kv * group + turn / each, t = begin_tile + turn % each;
            __syncthreads();
            A::template fetch<A::ROTARY>(size, q, qkv + head * size.dim, size.packed(), t * TILE, angles);
            A::template fetch<false>(size, g, dy + head * size.dim, size.width(), t * TILE, angles);
            const int of = sample * size.heads + head;
            TileSums own;
            if constexpr (SUMS) own.read(a, size, of, t * TILE);
            __syncthreads();
            const float* sums = sums_of(a, size, of, g, own, p);
            float s[EACH][EACH], d[EACH][EACH];
            const bool has_queries = A::has_rows(size, t * TILE);
            const int quads = A::quads(size, t * TILE);
            if (has_queries) {
                A::products(q, k, s);
                A::products(g, v, d);
            }
            if constexpr (SUMS) __syncthreads();
            if (has_queries) {
                differentiate(a, size, of, sums, t * TILE, tile * TILE, s, d);
                A::keep_transposed(p, s);
            }
            __syncthreads();
            if (has_keys) A::add_product(p, g, quads, dv);
            __syncthreads();
            if (has_queries) A::keep_transposed(p, d);
            __syncthreads();
            if (has_keys) A::add_product(p, q, quads, dk);
        }
        T* dx = a.at<T>(Slots::DX) + (i64)sample * size.len * size.packed();
        A::template put_gradient<A::ROTARY>(size, dx + (size.heads + kv) * size.dim, tile * TILE, dk, angles, q);
        A::template put_gradient<false>(size, dx + (size.heads + size.kv + kv) * size.dim, tile * TILE, dv, angles, q);
    }

    static __device__ __forceinline__ void of_queries(const Args& a, Sizes size, int block, float* smem) {
        const int tiles = size.tiles();
        const int tile = tiles - 1 - block % tiles, of = block / tiles, head = of % size.heads;
        const int sample = of / size.heads, kv = head / size.group();
        const T* qkv = a.at<T>(Slots::QKV) + (i64)sample * size.len * size.packed();
        const T* dy = a.at<T>(Slots::DY) + (i64)sample * size.len * size.width();
        const float2* angles = a.at<float2>(Slots::WORK);
        float *k = smem, *v = k + A::FEATURES, *q = v + A::FEATURES, *g = q + A::FEATURES, *p = g + A::FEATURES;
        A::template fetch<A::ROTARY>(size, q, qkv + head * size.dim, size.packed(), tile * TILE, angles);
        A::template fetch<false>(size, g, dy + head * size.dim, size.width(), tile * TILE, angles);
        TileSums own;
        if constexpr (SUMS) own.read(a, size, of, tile * TILE);
        float dq[EACH][A::HOLD];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int h = 0; h < A::HOLD; ++h) dq[i][h] = 0.0f;
        }
        const int past = A::CAUSAL ? tile + 1 : tiles;
        const bool has_rows = A::has_rows(size, tile * TILE);
#pragma unroll 1
        for (int t = 0; t < past; ++t) {
            A::next_keys(size, k, v, qkv, kv, t * TILE, angles);
            const float* sums = sums_of(a, size, of, g, own, p);
            float s[EACH][EACH], d[EACH][EACH];
            if (has_rows) {
                A::products(q, k, s);
                A::products(g, v, d);
            }
            if constexpr (SUMS) __syncthreads();
            if (has_rows) {
                differentiate(a, size, of, sums, tile * TILE, t * TILE, s, d);
                A::keep(p, d);
            }
            __syncthreads();
            if (has_rows) A::add_product(p, k, A::quads(size, t * TILE), dq);
        }
        T* dx = a.at<T>(Slots::DX) + (i64)sample * size.len * size.packed();
        A::template put_gradient<A::ROTARY>(size, dx + head * size.dim, tile * TILE, dq, angles, k);
    }
};
