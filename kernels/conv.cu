// Convolutions as implicit GEMM, matrix products over positions that are gathered on the fly: forward pass, gradient of
// the input, gradient of the weight.
//
// Images are [n, h, w, c], weights [f, kh, kw, c / groups]. Slots: a, b, bias, saved, c_prev, c, z, work.
//
//     kind         a, b, c           rows              columns             sum over
//     forward      x, weight, y      output positions  filters             taps and channels
//     backward x   dy, weight, dx    input positions   channels            taps and filters
//     backward w   x, dy, dw         filters           taps and channels   output positions

enum ConvKind { CONV_FORWARD = 0, CONV_BACKWARD_X = 1, CONV_BACKWARD_W = 2 };
enum ConvMath { CONV_SIMT = 0, CONV_TENSOR = 1 };

template <int N_, int H_, int W_, int C_, int F_, int KH_, int KW_, int SH_, int SW_, int PH_, int PW_, int DH_,
    int DW_, int G_, int HO_, int WO_>
struct ConvGeom {
    static constexpr int N = N_, H = H_, W = W_, C = C_, F = F_, KH = KH_, KW = KW_, SH = SH_, SW = SW_, PH = PH_,
                         PW = PW_, DH = DH_, DW = DW_, G = G_, HO = HO_, WO = WO_;
    static constexpr int CG = C / G, FG = F / G, TAPS = KH * KW;
    // Whether all strides and dilations are one.
    static constexpr bool DENSE = SH == 1 && SW == 1 && DH == 1 && DW == 1;
    static constexpr i64 X = (i64)N * H * W * C, Y = (i64)N * HO * WO * F, WEIGHT = (i64)F * TAPS * CG;
    static_assert(
        (i64)N * H * W < (1ll << 31) - 256 && (i64)N * HO * WO < (1ll << 31) - 256 && WEIGHT < (1ll << 31) - 256,
        "positions are counted in int");
    static constexpr bool FIXED = true;
    static constexpr i64 results(int kind) { return kind == CONV_FORWARD ? Y : kind == CONV_BACKWARD_X ? X : WEIGHT; }
    // The number of contiguous elements that one copy of each factor moves, that one access of a direct convolution
    // moves, that a thread stores, and that a thread of the second phase adds.
    template <int KIND, class T> static constexpr int copied_a() {
        return vec_width<T>(KIND == CONV_FORWARD ? CG : FG);
    }
    template <int KIND, class T> static constexpr int copied_b() {
        return vec_width<T>(KIND == CONV_FORWARD ? TAPS * CG : CG);
    }
    template <class T> static constexpr int direct() { return CG == 1 && FG == 1 ? min_i(vec_width<T>(C), 4) : 1; }
    template <class T> static constexpr int copied_line() { return vec_width<T>(W * C); }
    static constexpr int stored(int kind) {
        return (kind == CONV_FORWARD ? FG : kind == CONV_BACKWARD_X ? CG : TAPS * CG) % 4 == 0 ? 4 : 1;
    }
    static constexpr int added(int kind, bool bias) {
        const i64 len = results(kind);
        const int line = kind == CONV_FORWARD ? F : kind == CONV_BACKWARD_X ? C : TAPS * CG;
        return len % 4 == 0 && (line % 4 == 0 || (!bias && len >= 65536)) ? 4 : 1;
    }
    // Whether offsets in the gathered image, or in y, need 64 bits.
    static constexpr bool wide_image(int kind) {
        return (kind == CONV_BACKWARD_X ? Y : X) + (i64)KH * DH * (W + WO) * C >= (1ll << 31) - 4096;
    }
    static constexpr bool wide_y() { return Y >= (1ll << 31) - 4096; }
};

// The geometry of general members, which read their sizes. They are compiled for DENSE, whether all strides and
// dilations are one, for the widths that a `ConvGeom` computes, and whether offsets need 64 bits.
template <bool DENSE_, int A, int B, int STORED, int ADDED, bool WIDE> struct ConvAny {
    static constexpr bool DENSE = DENSE_, FIXED = false;
    static constexpr int SH = DENSE ? 1 : (int)ANY, SW = SH, DH = SH, DW = SH;
    // Not a constant here: the plan knows the size of scratch memory.
    static constexpr i64 results(int) { return 0; }
    template <int KIND, class T> static constexpr int copied_a() { return A; }
    template <int KIND, class T> static constexpr int copied_b() { return B; }
    template <class T> static constexpr int direct() { return A; }
    template <class T> static constexpr int copied_line() { return A; }
    static constexpr int stored(int) { return STORED; }
    static constexpr int added(int, bool) { return ADDED; }
    static constexpr bool wide_image(int) { return WIDE; }
    static constexpr bool wide_y() { return WIDE; }
};

// The sizes of a geometry: constants, or the numbers 0 to 8 and 10 of the kernel's arguments. Number 7 holds the rows
// and columns of the kernel and those of the padding, 16 bits each; number 10 the strides and the dilations, 12 bits
// each, below the functions of the epilogue.
template <class Geom, bool FIXED = Geom::FIXED> struct ConvSizes {
    static constexpr int sh = Geom::SH, sw = Geom::SW, dh = Geom::DH, dw = Geom::DW;
    static constexpr int n = Geom::N, h = Geom::H, w = Geom::W, c = Geom::C, f = Geom::F, kh = Geom::KH, kw = Geom::KW,
                         ph = Geom::PH, pw = Geom::PW, g = Geom::G, ho = Geom::HO, wo = Geom::WO, cg = Geom::CG,
                         fg = Geom::FG, taps = Geom::TAPS;
    constexpr ConvSizes() {}
    __device__ __forceinline__ constexpr explicit ConvSizes(const Args&) {}
};
template <class Geom> struct ConvSizes<Geom, false> {
    int n, h, w, c, f, kh, kw, ph, pw, g, ho, wo, cg, fg, taps, sh = 1, sw = 1, dh = 1, dw = 1;
    __device__ __forceinline__ explicit ConvSizes(const Args& a)
        : n((int)Number<ANY, 0>(a)), h((int)Number<ANY, 1>(a)), w((int)Number<ANY, 2>(a)), c((int)Number<ANY, 3>(a)),
          f((int)Number<ANY, 4>(a)), g((int)Number<ANY, 8>(a)), ho((int)Number<ANY, 5>(a)), wo((int)Number<ANY, 6>(a)) {
        const i64 window = Number<ANY, 7>(a);
        kh = (int)(window & 0xffff), kw = (int)(window >> 16 & 0xffff), ph = (int)(window >> 32 & 0xffff),
        pw = (int)(window >> 48 & 0xffff);
        cg = c, fg = f, taps = kh * kw;
        if (g != 1) cg = divide(c, g), fg = divide(f, g);
        if constexpr (Geom::DENSE) return;
        const i64 steps = Number<ANY, 10>(a);
        sh = (int)(steps & 0xfff), sw = (int)(steps >> 12 & 0xfff), dh = (int)(steps >> 24 & 0xfff),
        dw = (int)(steps >> 36 & 0xfff);
    }
};
// Elements of the result of a product, and of one of its lines.
template <int KIND, class S> __host__ __device__ constexpr i64 conv_results(const S& s) {
    return KIND == CONV_FORWARD  ? (i64)s.n * s.ho * s.wo * s.f
        : KIND == CONV_BACKWARD_X ? (i64)s.n * s.h * s.w * s.c
                                  : (i64)s.f * s.taps * s.cg;
}
template <int KIND, class S> __host__ __device__ constexpr int conv_line(const S& s) {
    return KIND == CONV_FORWARD ? s.f : KIND == CONV_BACKWARD_X ? s.c : s.taps * s.cg;
}

__host__ __device__ constexpr int conv_gcd(int a, int b) {
    while (b != 0) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

template <bool WIDE> struct ConvOffsetType { typedef int Of; };
template <> struct ConvOffsetType<true> { typedef i64 Of; };
// Gradients of weights are always float.
template <class T, bool FLOAT> struct ConvResult { typedef T Of; };
template <class T> struct ConvResult<T, true> { typedef float Of; };

// ---------------------------------------- one axis of the image

// Which positions of the gathered image (x in the forward pass, dy in the gradient of x) contribute to a position of
// the result along one axis: position `out0 + i * out_step` of the result reads `origin + i * step + offset0 + t *
// offset_step` through the kernel's tap `tap0 + t * tap_step`, for i < count and t < taps.
//
// The gradient of x is split into stride `classes` of positions with (position + padding) % stride ==
// residue, because only the taps with the same residue contribute to them: kernels then skip all other taps.
//
// `in` and `out` are the positions of x and y, `k` the taps of the kernel, `p` the padding.
template <bool FORWARD, int S, int D> struct ConvSteps {
    static constexpr int stride = S, dilation = D, step = FORWARD ? S : 1, out_step = FORWARD ? 1 : S;
    static constexpr int shared = conv_gcd(S, D), tap_step = FORWARD ? 1 : S / shared,
                         offset_step = FORWARD ? D : -(D / shared);
    __device__ __forceinline__ constexpr ConvSteps(int, int) {}
};
template <bool FORWARD> struct ConvSteps<FORWARD, (int)ANY, (int)ANY> {
    int stride, dilation, step, out_step, tap_step, offset_step;
    __device__ __forceinline__ ConvSteps(int s, int d) : stride(s), dilation(d) {
        const int shared = conv_gcd(s, d);
        step = FORWARD ? s : 1, out_step = FORWARD ? 1 : s;
        tap_step = FORWARD ? 1 : s / shared, offset_step = FORWARD ? d : -(d / shared);
    }
};
template <bool FORWARD, int S, int D> struct ConvAxis : ConvSteps<FORWARD, S, D> {
    using Steps = ConvSteps<FORWARD, S, D>;
    // For the stride `s`: the classes, and the positions of the largest one.
    static constexpr int classes(int s) { return FORWARD ? 1 : s; }
    static constexpr int most(int in, int out, int s) { return FORWARD ? out : ceil_div(in, s); }
    int count, origin, out0, taps, tap0, offset0;
    // The axis of a class, for the stride `s` and the dilation `d`.
    __device__ __forceinline__ ConvAxis(int residue, int in, int out, int k, int p, int s, int d) : Steps(s, d) {
        if constexpr (FORWARD) {
            count = out, origin = -p, out0 = 0, taps = k, tap0 = 0, offset0 = 0;
        } else {
            const int stride = Steps::stride, dilation = Steps::dilation, tap_step = Steps::tap_step;
            if constexpr (S == 1) residue = 0;
            origin = residue >= p ? 0 : (p - residue + stride - 1) / stride;
            out0 = origin * stride + residue - p;
            count = out0 < in ? (in - 1 - out0) / stride + 1 : 0;
            int tap = 0;
            while (tap < tap_step && tap * dilation % stride != residue) ++tap;
            tap0 = tap;
            taps = tap < tap_step && tap < k ? (k - 1 - tap) / tap_step + 1 : 0;
            offset0 = -((tap * dilation - residue) / stride);
        }
    }
};

// ---------------------------------------- tiles in shared memory

// ROWS rows of the product by BK elements of its depth, for one stage. KMAJOR: elements along the depth are contiguous;
// otherwise rows are. Groups of 16 bytes are permuted so that the same group of eight neighbouring lines is in
// different banks; lines of floats that are not KMAJOR are padded instead, because single elements are read from them.
template <class T, int ROWS, int BK, bool KMAJOR> struct ConvTile {
    static constexpr int V = 16 / (int)sizeof(T);
    static constexpr bool PADDED = !KMAJOR && sizeof(T) == 4;
    static constexpr int LINE = PADDED ? ROWS + 8 : KMAJOR ? BK : ROWS, LINES = KMAJOR ? ROWS : BK;
    static constexpr int LINE_BYTES = LINE * (int)sizeof(T), BYTES = LINE_BYTES * LINES;
    static_assert(PADDED || LINE_BYTES % 64 == 0 || LINE_BYTES == 32, "32 or 64n bytes");
    // The location of an element; the V elements of a group stay together.
    DEV int place(int line, int at) {
        if constexpr (PADDED) return line * LINE + at;
        const int swap = LINE_BYTES % 128 == 0 ? line & 7 : LINE_BYTES % 64 == 0 ? (line >> 1) & 3 : (line >> 2) & 1;
        return line * LINE + (((at / V) ^ swap) * V) + at % V;
    }
};

// Copies V elements to COUNT locations. `source(i, valid)` returns the source; zeros are written if it is not valid.
// Copies of 2 bytes cannot be asynchronous: eight loads are in flight before the first is stored. GUARD: `target`
// returns null if there is nothing to do.
template <class T, int V, int COUNT, bool GUARD, class Source, class Target>
DEV void conv_fill(const Source& source, const Target& target) {
    if constexpr (V * sizeof(T) >= 4) {
#pragma unroll(COUNT <= 8 ? COUNT : 4)
        for (int i = 0; i < COUNT; ++i) {
            bool valid;
            const T* from = source(i, valid);
            T* to = target(i);
            if (!GUARD || to != nullptr) copy_async<V * (int)sizeof(T)>(to, from, valid);
        }
    } else {
        constexpr int BATCH = min_i(COUNT, 8);
#pragma unroll 1
        for (int first = 0; first < COUNT; first += BATCH) {
            T held[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                bool valid;
                const T* from = source(first + i, valid);
                held[i] = T{};
                if (valid && first + i < COUNT) held[i] = *from;
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                T* to = target(first + i);
                if ((!GUARD || to != nullptr) && first + i < COUNT) *to = held[i];
            }
        }
    }
}

// Moves 16 bytes by one access; the compiler would move them word by word.
DEV void conv_store_global(float* at, const float (&v)[4]) {
    asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};"
        ::"l"(at), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
template <class T, int V> DEV void conv_store(T* at, const Vec<T, V>& v) {
    if constexpr (sizeof(v) == 16) {
        Vec<u32, 4> words;
        memcpy(&words, &v, 16);
        asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};"
            ::"l"(at), "r"(words.v[0]), "r"(words.v[1]), "r"(words.v[2]), "r"(words.v[3]) : "memory");
    } else {
        store<T, V>(at, v);
    }
}
DEV Vec<int, 4> conv_load_shared(const void* at) {
    Vec<int, 4> out;
    asm volatile("ld.shared.v4.s32 {%0,%1,%2,%3}, [%4];"
        : "=r"(out.v[0]), "=r"(out.v[1]), "=r"(out.v[2]), "=r"(out.v[3]) : "r"(shared_address(at)));
    return out;
}
DEV void conv_mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], float) { mma_tf32(c, a, b); }
DEV void conv_mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) { mma_bf16(c, a, b); }
DEV void conv_mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], f16) { mma_f16(c, a, b); }

// ---------------------------------------- results

template <class E, int V> DEV void conv_bias(const Args& a, int col, float (&bias)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
        bias[v] = 0.0f;
        if constexpr (E::BIAS) bias[v] = a.at<float>(slots::product::BIAS)[col + v];
    }
}

// Computes V neighbouring elements of the result from their sums of products. Only this thread accesses them, so that
// it may accumulate into the result.
template <class E, class TO, bool ACC, int V>
DEV void conv_finish(const Args& a, i64 index, const float (&bias)[V], const float (&sum)[V]) {
    Vec<TO, V> saved, out, before;
    Vec<float, V> previous;
    TO* c = a.at<TO>(slots::product::C);
    if constexpr (E::ACT_GRAD != NONE) saved = load<TO, V>(a.at<TO>(slots::product::SAVED) + index);
    if constexpr (ACC) previous = load<float, V>((const float*)c + index);
    float value[V], s[V], z[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
        value[v] = sum[v];
        if constexpr (ACC) value[v] += previous.v[v];
        s[v] = 0.0f;
        if constexpr (E::ACT_GRAD != NONE) s[v] = to_float(saved.v[v]);
    }
    E::template apply<float>(a, value, bias, s, z);
#pragma unroll
    for (int v = 0; v < V; ++v) {
        before.v[v] = narrow<TO>(z[v]);
        out.v[v] = narrow<TO>(value[v]);
    }
    if constexpr (E::SAVE_Z) {
        if (a.has(slots::product::Z)) store<TO, V>(a.at<TO>(slots::product::Z) + index, before);
    }
    conv_store(c + index, out);
}

// The second phase of a split sum: adds partial results [splits, len] of the work slot in a fixed order, and applies
// the epilogue; lines of the result have `ld` elements. A warp handles 32 V neighbouring elements and every split of
// its group; the sums of the warps with the same elements are added in shared memory.
template <class E, class TO, bool ACC, int V, int THREADS> struct ConvReduce {
    static constexpr int WARPS = THREADS / 32, SMEM = WARPS * 32 * V * 4;
    // The number of warps with the same elements.
    static constexpr int groups_of(int splits) {
        return splits >= 24 && WARPS % 12 == 0 ? 12
            : splits >= 16 && WARPS % 8 == 0   ? 8
            : splits >= 8 && WARPS % 4 == 0    ? 4
            : splits >= 4 && WARPS % 2 == 0    ? 2
                                               : 1;
    }
    static constexpr int elements(int splits) { return WARPS / groups_of(splits) * 32 * V; }
    static constexpr int blocks(i64 len, int splits) { return ceil_div(len, elements(splits)); }
    DEV void run(const Args& a, int block, char* smem, i64 len, int ld, int splits) {
        const int groups = groups_of(splits);
        if constexpr (WARPS % 12 == 0)
            if (groups == 12) return add_up<12>(a, block, smem, len, ld, splits);
        if constexpr (WARPS % 8 == 0)
            if (groups == 8) return add_up<8>(a, block, smem, len, ld, splits);
        if constexpr (WARPS % 4 == 0)
            if (groups == 4) return add_up<4>(a, block, smem, len, ld, splits);
        if constexpr (WARPS % 2 == 0)
            if (groups == 2) return add_up<2>(a, block, smem, len, ld, splits);
        add_up<1>(a, block, smem, len, ld, splits);
    }

  private:
    // The number of warps with the same elements is a constant, because divisions by it would take longer than the sum.
    template <int GROUPS> DEV void add_up(const Args& a, int block, char* smem, i64 len, int ld, int splits) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp % GROUPS;
        const i64 index = (i64)block * (WARPS / GROUPS * 32 * V) + (warp / GROUPS * 32 + lane) * V;
        const bool inside = index < len;
        const float* partial = a.at<float>(slots::product::WORK) + index;
        float sum[V];
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] = 0.0f;
        if (inside) {
#pragma unroll 8
            for (int i = 0; i < (splits + GROUPS - 1) / GROUPS; ++i) {
                const int s = group + i * GROUPS;
                if (splits % GROUPS == 0 || s < splits) {
                    const Vec<float, V> part = load<float, V>(partial + s * len);
#pragma unroll
                    for (int v = 0; v < V; ++v) sum[v] += part.v[v];
                }
            }
        }
        if (GROUPS > 1) {
            float* scratch = (float*)smem;
#pragma unroll
            for (int v = 0; v < V; ++v) scratch[(warp * V + v) * 32 + lane] = sum[v];
            __syncthreads();
            if (group == 0) {
#pragma unroll
                for (int other = 1; other < GROUPS; ++other)
#pragma unroll
                    for (int v = 0; v < V; ++v) sum[v] += scratch[((warp + other) * V + v) * 32 + lane];
            }
        }
        if (inside && group == 0) {
            float bias[V];
            conv_bias<E, V>(a, len <= 0x7fffffff ? (int)((u32)index % (u32)ld) : (int)(index % ld), bias);
            conv_finish<E, TO, ACC, V>(a, index, bias, sum);
        }
    }
};

// ---------------------------------------- the product

// One of the three products, of any geometry. A block computes a tile of BM by BN of one group of channels, in steps of
// BKB bytes along the depth, with STAGES tiles in flight.
//     CONV_TENSOR: a warp computes WM by WN (multiples of 16) with matrix instructions: TF32 for float, otherwise T's.
//     CONV_SIMT:   T = float; a thread computes WM by WN (4 or 8 each) with FMAs.
// Threads: BM / WM * BN / WN (warps or threads). Blocks: splits * groups * classes of positions * row tiles * column
// tiles. Alignment: any; copies are as wide as channels (or filters) per group allow. SPLITS > 1: the depth is split
// into that many ranges, whose results a second phase adds in a fixed order; WORK = SPLITS * results * 4 bytes.
// Overwrites c, or adds to it if ACC (gradient of the weight, always float). Deterministic. Reads each factor about
// once from memory, if neighbouring blocks share tiles in the second-level cache, and writes the result once (besides 2
// SPLITS results of the work slot).
template <int KIND, int MATH, class T, class Geom, int BM, int BN, int BKB, int WM, int WN, int STAGES, i64 SPLITS_,
    bool ACC, class E>
struct ConvGemm {
    using S = ConvSizes<Geom>;
    using R = ConvAxis<KIND == CONV_FORWARD, Geom::SH, Geom::DH>;
    using Q = ConvAxis<KIND == CONV_FORWARD, Geom::SW, Geom::DW>;
    static constexpr bool TENSOR = MATH == CONV_TENSOR, BWD_W = KIND == CONV_BACKWARD_W, FWD = KIND == CONV_FORWARD;
    static constexpr int THREADS = BM / WM * (BN / WN) * (TENSOR ? 32 : 1);
    static constexpr int BK = BKB / (int)sizeof(T);
    // Channels of one tap in the sum, positions of y, rows and columns of one group's product.
    static constexpr int channels(const S& s) { return FWD ? s.cg : s.fg; }
    static constexpr int positions(const S& s) { return s.n * s.ho * s.wo; }
    static constexpr int rows_of(const S& s) {
        return BWD_W ? s.fg : s.n * R::most(s.h, s.ho, s.sh) * Q::most(s.w, s.wo, s.sw);
    }
    static constexpr int cols_of(const S& s) { return FWD ? s.fg : BWD_W ? s.taps * s.cg : s.cg; }
    static constexpr int classes(const S& s) { return BWD_W ? 1 : R::classes(s.sh) * Q::classes(s.sw); }
    static constexpr int row_tiles(const S& s) { return ceil_div(rows_of(s), BM); }
    static constexpr int col_tiles(const S& s) { return ceil_div(cols_of(s), BN); }
    // The ranges of a split sum: number 9.
    using Splits = Number<SPLITS_, 9>;
    static constexpr bool SPLIT = SPLITS_ != 1;
    // Elements of one copy, which never spans two taps.
    static constexpr int VA = Geom::template copied_a<KIND, T>(), VB = Geom::template copied_b<KIND, T>();
    using TileA = ConvTile<T, BM, BK, !BWD_W>;
    using TileB = ConvTile<T, BN, BK, FWD>;
    static constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;
    using Offset = typename ConvOffsetType<Geom::wide_image(KIND)>::Of;
    using OffsetY = typename ConvOffsetType<Geom::wide_y()>::Of;
    // The location of a row of the product: its first tap in the gathered image (offset of group and image included),
    // and its offset in the result.
    struct alignas(16) Row { Offset base; int h, w, out; };
    using TO = typename ConvResult<T, BWD_W>::Of;
    using Reduce = ConvReduce<E, TO, ACC, Geom::added(KIND, E::BIAS), THREADS>;

    static constexpr int PHASES = SPLIT ? 2 : 1;
    static constexpr int blocks_of(const S& s, int splits, int phase) {
        return phase == 0 ? splits * s.g * classes(s) * row_tiles(s) * col_tiles(s)
                          : Reduce::blocks(conv_results<KIND>(s), splits);
    }
    static constexpr int blocks(int phase) { return blocks_of(S(), (int)SPLITS_, phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(S(a), (int)Splits(a), phase); }
    static constexpr int smem(int phase) {
        return phase == 0 ? STAGES * STAGE_BYTES + (BWD_W ? 0 : BM * (int)sizeof(Row)) : Reduce::SMEM;
    }
    static constexpr long long WORK = SPLIT ? SPLITS_ * Geom::results(KIND) * 4 : 0;
    static_assert(
        THREADS % 32 == 0 && THREADS <= 512 && (BKB == 64 || BKB == 128) && (TENSOR || sizeof(T) == 4), "tile");

    // This thread's position in the tile: each warp may have its own tile.
    DEV int here() { return THREADS == 32 ? (int)threadIdx.x % 32 : (int)threadIdx.x; }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) product(a, block, smem);
        else {
            const S s(a);
            Reduce::run(a, block, smem, conv_results<KIND>(s), conv_line<KIND>(s), (int)Splits(a));
        }
    }

    // The axes of the image for a class of positions.
    DEV R rows_in(const S& s, int kind) { return R(kind / Q::classes(s.sw), s.h, s.ho, s.kh, s.ph, s.sh, s.dh); }
    DEV Q cols_in(const S& s, int kind) { return Q(kind % Q::classes(s.sw), s.w, s.wo, s.kw, s.pw, s.sw, s.dw); }

    // The remainder of `rest` by `n`, and the quotient in `rest`.
    DEV int take(int& rest, int n) {
        if constexpr (Geom::FIXED) {
            const int remainder = rest % n;
            rest /= n;
            return remainder;
        }
        if (n == 1) return 0;
        const int of = divide(rest, n), remainder = rest - of * n;
        rest = of;
        return remainder;
    }

    // What the copies of every step divide by: the channels of a tap, the taps of a row, and the positions of an image
    // and of a row of y.
    using By = typename DivisorOf<Geom::FIXED>::Type;
    struct Divisors {
        By channels, taps, image, row;
        __device__ __forceinline__ Divisors(const S& s, const Q& cols)
            : channels(ConvGemm::channels(s)), taps(max(cols.taps, 1)), image(s.ho * s.wo), row(s.wo) {}
    };

    DEV void product(const Args& a, int block, char* smem) {
        const S s(a);
        const int splits = (int)Splits(a);
        const int col0 = take(block, col_tiles(s)) * BN, row0 = take(block, row_tiles(s)) * BM;
        const int kind = take(block, classes(s)), group = take(block, s.g), split = block;
        const R rows = rows_in(s, kind);
        const Q cols = cols_in(s, kind);
        const Divisors by(s, cols);
        // A class of positions may have fewer row tiles than the largest class, and it may have no taps.
        const int most = row0 < s.n * rows.count * cols.count ? rows.taps * cols.taps * channels(s) : 0;
        const int sum = BWD_W ? positions(s) : most;
        const int steps = divide(sum + BK - 1, BK), each = SPLIT ? divide(steps + splits - 1, splits) : steps;
        const int first = min_i(split * each, steps), count = min_i(first + each, steps) - first;

        Row* const table = (Row*)(smem + STAGES * STAGE_BYTES);
        if constexpr (!BWD_W) {
            for (int r = here(); r < BM; r += THREADS) table[r] = locate(s, row0 + r, group, rows, cols);
            __syncthreads();
        }
        const auto fill = [&](int step) {
            char* stage = smem + step % STAGES * STAGE_BYTES;
            const int k0 = (first + step) * BK;
            if constexpr (BWD_W) {
                fill_dy(s, a, (T*)stage, group, row0, k0);
                fill_x(s, by, a, (T*)(stage + TileA::BYTES), group, col0, k0);
            } else {
                fill_image(s, by, a, (T*)stage, table, rows, cols, k0, sum);
                if constexpr (FWD) fill_weight(s, a, (T*)(stage + TileA::BYTES), group, col0, k0);
                else fill_weight_across(s, by, a, (T*)(stage + TileA::BYTES), group, col0, rows, cols, k0, sum);
            }
        };
        constexpr int ACC_ROWS = TENSOR ? WM / 16 : WM, ACC_COLS = TENSOR ? WN / 8 : WN, ACC_EACH = TENSOR ? 4 : 1;
        float acc[ACC_ROWS][ACC_COLS][ACC_EACH];
        clear_sums(acc);

#pragma unroll 1
        for (int step = 0; step < STAGES - 1; ++step) {
            if (step < count) fill(step);
            copy_commit();
        }
#pragma unroll 1
        for (int step = 0; step < count; ++step) {
            copy_wait<STAGES - 2>();
            // The copies of all threads for this step are complete, and no thread still reads the stage that is filled
            // next.
            __syncthreads();
            if (step + STAGES - 1 < count) fill(step + STAGES - 1);
            copy_commit();
            const T* stage = (const T*)(smem + step % STAGES * STAGE_BYTES);
            if constexpr (TENSOR) multiply_tensor(acc, stage, stage + TileA::BYTES / sizeof(T));
            else multiply_simt(acc, stage, stage + TileA::BYTES / sizeof(T));
        }
        copy_wait<0>();
        if constexpr (TENSOR) finish_tensor(s, a, acc, table, group, split, row0, col0);
        else finish_simt(s, a, acc, table, group, split, row0, col0);
    }

    // The row `m` of the product of one class of positions; rows beyond the last read only padding and are not stored.
    DEV Row locate(const S& s, int m, int group, const R& rows, const Q& cols) {
        const int line = FWD ? s.c : s.f, high = FWD ? s.h : s.ho, wide = FWD ? s.w : s.wo;
        const int per_image = rows.count * cols.count;
        if (per_image == 0 || m >= s.n * per_image) return Row{0, -(1 << 30), 0, -1};
        const int n = divide(m, per_image), at = m - n * per_image, i = divide(at, cols.count), j = at - i * cols.count;
        Row row;
        row.h = rows.origin + i * rows.step;
        row.w = cols.origin + j * cols.step;
        row.base = (((Offset)n * high + row.h) * wide + row.w) * line + group * channels(s);
        const int out_h = FWD ? s.ho : s.h, out_w = FWD ? s.wo : s.w;
        row.out = (n * out_h + rows.out0 + i * rows.out_step) * out_w + cols.out0 + j * cols.out_step;
        return row;
    }

    DEV Row read_row(const Row* at) {
        if constexpr (sizeof(Row) != 16) {
            return *at;
        } else {
            const Vec<int, 4> words = conv_load_shared(at);
            Row row;
            row.base = words.v[0], row.h = words.v[1], row.w = words.v[2], row.out = words.v[3];
            return row;
        }
    }

    // ------------------------------------------------------------------------------------------------ copies

    // The address of a line and a slot in a tile of LINES lines, of which a thread handles every ALONG-th; null after
    // the last line.
    template <class Tile, int LINES, int ALONG> DEV T* spot(T* tile, int line, int slot) {
        return LINES % ALONG == 0 || line < LINES ? tile + Tile::place(line, slot) : nullptr;
    }

    // Rows of the gathered image: x forward, dy backward. All copies of a thread in one step have the same tap and
    // channel.
    DEV void fill_image(const S& s, const Divisors& by, const Args& a, T* tile, const Row* table, const R& rows,
        const Q& cols, int k0, int sum) {
        constexpr int SLOTS = BK / VA, ALONG = THREADS / SLOTS, COUNT = ceil_div(BM, ALONG);
        static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
        const int slot = here() % SLOTS * VA, line = here() / SLOTS, k = k0 + slot;
        // If every step is within one tap, all threads have the same tap.
        const int each = channels(s), high = FWD ? s.h : s.ho, wide = FWD ? s.w : s.wo;
        const u32 tap = quotient((u32)(each % BK == 0 ? k0 : k), by.channels), i = quotient(tap, by.taps),
                  j = tap - i * (u32)cols.taps;
        const int h = rows.offset0 + (int)i * rows.offset_step, w = cols.offset0 + (int)j * cols.offset_step;
        const T* from =
            a.at<T>(slots::product::A) + (((Offset)h * wide + w) * (FWD ? s.c : s.f) + (k - (int)tap * each));
        const bool inside = k < sum;
        conv_fill<T, VA, COUNT, BM % ALONG != 0>(
            [&](int c, bool& valid) {
                const Row row = read_row(&table[BM % ALONG == 0 ? line + c * ALONG : min_i(line + c * ALONG, BM - 1)]);
                valid = inside & ((u32)(row.h + h) < (u32)high) & ((u32)(row.w + w) < (u32)wide);
                return from + row.base;
            },
            [&](int c) { return spot<TileA, BM, ALONG>(tile, line + c * ALONG, slot); });
    }

    // Forward: filters by taps and channels, as they are stored in memory.
    DEV void fill_weight(const S& s, const Args& a, T* tile, int group, int col0, int k0) {
        constexpr int SLOTS = BK / VB, ALONG = THREADS / SLOTS, COUNT = ceil_div(BN, ALONG);
        static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
        const int slot = here() % SLOTS * VB, line = here() / SLOTS, k = k0 + slot, all = s.taps * s.cg;
        const T* from = a.at<T>(slots::product::B) + ((group * s.fg + col0 + line) * all + k);
        conv_fill<T, VB, COUNT, BN % ALONG != 0>(
            [&](int c, bool& valid) {
                valid = (k < all) & (col0 + line + c * ALONG < s.fg);
                return from + c * ALONG * all;
            },
            [&](int c) { return spot<TileB, BN, ALONG>(tile, line + c * ALONG, slot); });
    }

    // Gradient of x: the lines of the tile are taps and filters, along a line are channels.
    DEV void fill_weight_across(
        const S& s, const Divisors& by, const Args& a, T* tile, int group, int col0, const R& rows, const Q& cols,
        int k0, int sum) {
        constexpr int SLOTS = BN / VB, ALONG = THREADS / SLOTS, COUNT = ceil_div(BK, ALONG);
        static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
        const int slot = here() % SLOTS * VB, line = here() / SLOTS;
        const T* from = a.at<T>(slots::product::B) + (col0 + slot);
        const bool inside = col0 + slot < s.cg;
        conv_fill<T, VB, COUNT, BK % ALONG != 0>(
            [&](int c, bool& valid) {
                const int k = k0 + line + c * ALONG;
                const u32 tap = quotient((u32)(s.fg % BK == 0 ? k0 : k), by.channels), i = quotient(tap, by.taps),
                          j = tap - i * (u32)cols.taps;
                valid = inside & (k < sum);
                const int at = (rows.tap0 + (int)i * rows.tap_step) * s.kw + cols.tap0 + (int)j * cols.tap_step;
                return from + ((group * s.fg + k - (int)tap * s.fg) * s.taps + at) * s.cg;
            },
            [&](int c) { return spot<TileB, BK, ALONG>(tile, line + c * ALONG, slot); });
    }

    // Gradient of the weight: the lines of both tiles are positions of y; along them are filters ...
    DEV void fill_dy(const S& s, const Args& a, T* tile, int group, int row0, int k0) {
        constexpr int SLOTS = BM / VA, ALONG = THREADS / SLOTS, COUNT = ceil_div(BK, ALONG);
        static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
        const int slot = here() % SLOTS * VA, line = here() / SLOTS;
        const T* from = a.at<T>(slots::product::B) + ((OffsetY)(k0 + line) * s.f + group * s.fg + row0 + slot);
        const bool inside = row0 + slot < s.fg;
        conv_fill<T, VA, COUNT, BK % ALONG != 0>(
            [&](int c, bool& valid) {
                valid = inside & (k0 + line + c * ALONG < positions(s));
                return from + (OffsetY)(c * ALONG) * s.f;
            },
            [&](int c) { return spot<TileA, BK, ALONG>(tile, line + c * ALONG, slot); });
    }

    // ... and taps and channels of x; a thread's tap and channel never change.
    DEV void fill_x(const S& s, const Divisors& by, const Args& a, T* tile, int group, int col0, int k0) {
        constexpr int SLOTS = BN / VB, ALONG = THREADS / SLOTS, COUNT = ceil_div(BK, ALONG);
        static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
        const int slot = here() % SLOTS * VB, line = here() / SLOTS, col = col0 + slot;
        const int tap = divide(col, s.cg), i = divide(tap, s.kw), h = i * s.dh - s.ph,
                  w = (tap - i * s.kw) * s.dw - s.pw;
        const T* from = a.at<T>(slots::product::A) +
            (((Offset)h * s.w + w) * s.c + group * s.cg + col - tap * s.cg);
        const bool inside = col < cols_of(s);
        conv_fill<T, VB, COUNT, BK % ALONG != 0>(
            [&](int c, bool& valid) {
                const u32 p = (u32)(k0 + line + c * ALONG), n = quotient(p, by.image),
                          at = p - n * (u32)(s.ho * s.wo);
                const u32 oh = quotient(at, by.row), ow = at - oh * (u32)s.wo;
                const int ih = (int)oh * s.sh, iw = (int)ow * s.sw;
                valid = inside & (p < (u32)positions(s)) & ((u32)(ih + h) < (u32)s.h) & ((u32)(iw + w) < (u32)s.w);
                return from + (((Offset)n * s.h + ih) * s.w + iw) * s.c;
            },
            [&](int c) { return spot<TileB, BK, ALONG>(tile, line + c * ALONG, slot); });
    }

    // ------------------------------------------------------------------------------------------------ tensor cores

    static constexpr int TM = TENSOR ? WM / 16 : 1, TN = TENSOR ? WN / 16 : 1;
    struct Fragments { u32 a[TM][4], b[TN][4]; };

    // The fragments for 32 bytes of the depth. One load of B serves two neighbouring tiles of eight columns: words 0, 1
    // and words 2, 3.
    DEV void load_fragments(Fragments& f, const T* tile_a, const T* tile_b, int k) {
        constexpr int V = TileA::V;
        const int lane = here() % 32, warp = here() / 32, m = warp / (BN / WN) * WM, n = warp % (BN / WN) * WN;
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            if constexpr (!BWD_W) {
                load_matrix_x4(f.a[i], tile_a + TileA::place(m + i * 16 + lane % 16, k + lane / 16 * V));
            } else if constexpr (sizeof(T) == 2) {
                load_matrix_x4_trans(
                    f.a[i], tile_a + TileA::place(k + lane / 16 * 8 + lane % 8, m + i * 16 + lane / 8 % 2 * 8));
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    f.a[i][e] = __float_as_uint(
                        ((const float*)tile_a)
                            [TileA::place(k + lane % 4 + e / 2 * 4, m + i * 16 + lane / 4 + e % 2 * 8)]);
            }
        }
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            if constexpr (FWD) {
                load_matrix_x4(
                    f.b[j], tile_b + TileB::place(n + j * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * V));
            } else if constexpr (sizeof(T) == 2) {
                load_matrix_x4_trans(f.b[j], tile_b + TileB::place(k + lane % 16, n + j * 16 + lane / 16 * 8));
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    f.b[j][e] = __float_as_uint(
                        ((const float*)tile_b)
                            [TileB::place(k + lane % 4 + e % 2 * 4, n + j * 16 + lane / 4 + e / 2 * 8)]);
            }
        }
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e) f.a[i][e] = to_tf32(__uint_as_float(f.a[i][e]));
#pragma unroll
            for (int j = 0; j < TN; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) f.b[j][e] = to_tf32(__uint_as_float(f.b[j][e]));
        }
    }

    template <class Acc> DEV void multiply_tensor(Acc& acc, const T* tile_a, const T* tile_b) {
        constexpr int K = 32 / (int)sizeof(T), STEPS = BK / K;
        Fragments f[2];
        load_fragments(f[0], tile_a, tile_b, 0);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            if (s + 1 < STEPS) load_fragments(f[(s + 1) % 2], tile_a, tile_b, (s + 1) * K);
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN * 2; ++j) {
                    const u32 b[2] = {f[s % 2].b[j / 2][j % 2 * 2], f[s % 2].b[j / 2][j % 2 * 2 + 1]};
                    conv_mma(acc[i][j], f[s % 2].a[i], b, T{});
                }
        }
    }

    // The offset of a row of the result, or -1 if it is not stored; the offset of a column in it; and the store of V
    // elements. With splits, the second phase adds the bias.
    DEV int place_row(const S& s, const Row* table, int group, int row0, int r) {
        if constexpr (BWD_W) return row0 + r < s.fg ? group * s.fg + row0 + r : -1;
        else return table[r].out;
    }
    DEV int place_col(const S& s, int group, int col) { return BWD_W ? col : group * cols_of(s) + col; }
    template <int V> DEV void put_bias(const Args& a, int line, bool inside, float (&bias)[V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) bias[v] = 0.0f;
        if constexpr (E::BIAS && !SPLIT) {
            if (inside) conv_bias<E, V>(a, line, bias);
        }
    }
    template <int V>
    DEV void put(
        const S& s, const Args& a, int split, int row, int line, const float (&bias)[V], const float (&sum)[V]) {
        const i64 index = (i64)row * conv_line<KIND>(s) + line;
        if constexpr (SPLIT) {
            float* const part = a.at<float>(slots::product::WORK) + (split * conv_results<KIND>(s) + index);
            if constexpr (V == 4) conv_store_global(part, sum);
            else part[0] = sum[0];
        } else {
            conv_finish<E, TO, ACC, V>(a, index, bias, sum);
        }
    }

    template <class Acc>
    DEV void finish_tensor(
        const S& s, const Args& a, Acc& acc, const Row* table, int group, int split, int row0, int col0) {
        const int lane = here() % 32, warp = here() / 32, m = warp / (BN / WN) * WM + lane / 4,
                  n = col0 + warp % (BN / WN) * WN;
        constexpr int V = Geom::stored(KIND);
        const bool odd = lane % 2 != 0;
        int row[TM * 2];
#pragma unroll
        for (int i = 0; i < TM * 2; ++i) row[i] = place_row(s, table, group, row0, m + i * 8);
#pragma unroll
        for (int j = 0; j < TN; ++j)
#pragma unroll
            for (int e = 0; e < 4; e += V) {
                // A lane has two neighbouring columns of each of two tiles of eight columns; pairs of lanes exchange
                // values so that each has four columns of one tile.
                const int col = n + j * 16 +
                    (V == 4 ? lane % 2 * 8 + lane % 4 / 2 * 4 : e / 2 * 8 + lane % 4 * 2 + e % 2),
                          line = place_col(s, group, col);
                float bias[V];
                put_bias<V>(a, line, col < cols_of(s), bias);
#pragma unroll
                for (int i = 0; i < TM * 2; ++i) {
                    const float* left = &acc[i / 2][j * 2][i % 2 * 2];
                    const float* right = &acc[i / 2][j * 2 + 1][i % 2 * 2];
                    float sum[V];
                    if constexpr (V == 4) {
                        const float x = __shfl_xor_sync(0xffffffffu, odd ? left[0] : right[0], 1),
                                    y = __shfl_xor_sync(0xffffffffu, odd ? left[1] : right[1], 1);
                        sum[0] = odd ? x : left[0], sum[1] = odd ? y : left[1], sum[2] = odd ? right[0] : x,
                        sum[3] = odd ? right[1] : y;
                    } else {
                        sum[0] = e < 2 ? left[e] : right[e - 2];
                    }
                    if (row[i] >= 0 && col < cols_of(s)) put<V>(s, a, split, row[i], line, bias, sum);
                }
            }
    }

    // ------------------------------------------------------------------------------------------------ FMAs

    // The WM rows and WN columns of a thread: a stride apart if elements along the depth are contiguous, otherwise in
    // groups of four neighbours, so that both are read 16 bytes at a time from different banks.
    static constexpr int ACROSS = BN / WN, DOWN = BM / WM;
    DEV int row_of(int i) {
        const int y = here() / ACROSS;
        return BWD_W ? (i / 4 * DOWN + y) * 4 + i % 4 : i * DOWN + y;
    }
    DEV int col_of(int j) {
        const int x = here() % ACROSS;
        return !FWD ? (j / 4 * ACROSS + x) * 4 + j % 4 : j * ACROSS + x;
    }

    template <class Acc> DEV void multiply_simt(Acc& acc, const T* tile_a, const T* tile_b) {
#pragma unroll 2
        for (int k = 0; k < BK; k += 4) {
            float b[WN][4];
            if constexpr (FWD) {
#pragma unroll
                for (int j = 0; j < WN; ++j) {
                    const Vec<float, 4> v = load<float, 4>((const float*)tile_b + TileB::place(col_of(j), k));
#pragma unroll
                    for (int e = 0; e < 4; ++e) b[j][e] = v.v[e];
                }
            } else {
#pragma unroll
                for (int j = 0; j < WN; j += 4)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const Vec<float, 4> v = load<float, 4>((const float*)tile_b + TileB::place(k + e, col_of(j)));
#pragma unroll
                        for (int x = 0; x < 4; ++x) b[j + x][e] = v.v[x];
                    }
            }
            if constexpr (!BWD_W) {
#pragma unroll
                for (int i = 0; i < WM; ++i) {
                    const Vec<float, 4> v = load<float, 4>((const float*)tile_a + TileA::place(row_of(i), k));
#pragma unroll
                    for (int e = 0; e < 4; ++e)
#pragma unroll
                        for (int j = 0; j < WN; ++j) acc[i][j][0] = fmaf(v.v[e], b[j][e], acc[i][j][0]);
                }
            } else {
#pragma unroll
                for (int i = 0; i < WM; i += 4)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const Vec<float, 4> v = load<float, 4>((const float*)tile_a + TileA::place(k + e, row_of(i)));
#pragma unroll
                        for (int x = 0; x < 4; ++x)
#pragma unroll
                            for (int j = 0; j < WN; ++j) acc[i + x][j][0] = fmaf(v.v[x], b[j][e], acc[i + x][j][0]);
                    }
            }
        }
    }

    template <class Acc>
    DEV void finish_simt(
        const S& s, const Args& a, Acc& acc, const Row* table, int group, int split, int row0, int col0) {
        constexpr int V = FWD ? 1 : Geom::stored(KIND);
#pragma unroll
        for (int j = 0; j < WN; j += V) {
            const int col = col0 + col_of(j), line = place_col(s, group, col);
            float bias[V];
            put_bias<V>(a, line, col < cols_of(s), bias);
#pragma unroll
            for (int i = 0; i < WM; ++i) {
                const int row = place_row(s, table, group, row0, row_of(i));
                float sum[V];
#pragma unroll
                for (int v = 0; v < V; ++v) sum[v] = acc[i][j + v][0];
                if (row >= 0 && col < cols_of(s)) put<V>(s, a, split, row, line, bias, sum);
            }
        }
    }
};

// Forward pass or gradient of x of a small problem in one launch: every warp of a block computes the whole tile of BM
// by BN (512 elements, 16 for each lane) from its own slice of the depth, with all copies in flight at once, and the
// block adds the results of its warps in a fixed order. Threads: 32 SLICES. Blocks: groups * classes of positions * row
// tiles * column tiles. Alignment: any. Overwrites. Deterministic.
//
// PER is the number of steps of a warp. A general member has up to SLICES warps with work; their number is number 9.
template <int KIND, class Geom, int BM, int BN, int SLICES, int PER, class E> struct ConvSliced {
    using Gemm = ConvGemm<KIND, CONV_SIMT, float, Geom, BM, BN, 64, 4, 4, 2, 1, false, E>;
    using S = ConvSizes<Geom>;
    using R = typename Gemm::R;
    using Q = typename Gemm::Q;
    using Row = typename Gemm::Row;
    static_assert(KIND != CONV_BACKWARD_W && BM * BN == 512, "the tile must have 512 results");
    static constexpr bool FWD = KIND == CONV_FORWARD;
    static constexpr int PHASES = 1, THREADS = 32 * SLICES, OWN_BYTES = max_i(PER * Gemm::STAGE_BYTES, BM * BN * 4);
    static constexpr long long WORK = 0;
    static constexpr int blocks(int phase) { return Gemm::blocks(phase); }
    DEV int blocks_for(const Args& a, int phase) { return Gemm::blocks_of(S(a), 1, phase); }
    static constexpr int smem(int) { return SLICES * OWN_BYTES + BM * (int)sizeof(Row); }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const S s(a);
        const int slices = (int)Number<Geom::FIXED ? SLICES : ANY, 9>(a);
        const int col0 = Gemm::take(block, Gemm::col_tiles(s)) * BN, row0 = Gemm::take(block, Gemm::row_tiles(s)) * BM;
        const int kind = Gemm::take(block, Gemm::classes(s)), group = block;
        const int slice = threadIdx.x / 32, lane = threadIdx.x % 32;
        const R rows = Gemm::rows_in(s, kind);
        const Q cols = Gemm::cols_in(s, kind);
        const typename Gemm::Divisors by(s, cols);
        const int sum = row0 < s.n * rows.count * cols.count ? rows.taps * cols.taps * Gemm::channels(s) : 0;
        Row* const table = (Row*)(smem + SLICES * OWN_BYTES);
        for (int r = threadIdx.x; r < BM; r += THREADS) table[r] = Gemm::locate(s, row0 + r, group, rows, cols);
        __syncthreads();
        char* const own = smem + slice * OWN_BYTES;
#pragma unroll
        for (int i = 0; i < PER; ++i) {
            const int k0 = (slice * PER + i) * Gemm::BK;
            float* const stage = (float*)(own + i * Gemm::STAGE_BYTES);
            if (k0 >= sum) break;
            Gemm::fill_image(s, by, a, stage, table, rows, cols, k0, sum);
            if constexpr (FWD) Gemm::fill_weight(s, a, stage + Gemm::TileA::BYTES / 4, group, col0, k0);
            else Gemm::fill_weight_across(s, by, a, stage + Gemm::TileA::BYTES / 4, group, col0, rows, cols, k0, sum);
        }
        copy_commit();
        float acc[4][4][1];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) acc[i][j][0] = 0.0f;
        copy_wait<0>();
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < PER; ++i) {
            if ((slice * PER + i) * Gemm::BK >= sum) break;
            const float* const stage = (const float*)(own + i * Gemm::STAGE_BYTES);
            Gemm::multiply_simt(acc, stage, stage + Gemm::TileA::BYTES / 4);
        }
        __syncwarp();
        float* const mine = (float*)own;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) mine[(i * 4 + j) * 32 + lane] = acc[i][j][0];
        __syncthreads();
        for (int at = threadIdx.x; at < BM * BN; at += THREADS) {
            const int l = at % 32, i = at / 128, j = at / 32 % 4, x = l % Gemm::ACROSS, y = l / Gemm::ACROSS;
            const int row = table[i * Gemm::DOWN + y].out, col = col0 + (FWD ? j * Gemm::ACROSS + x : x * 4 + j);
            float total[1] = {0.0f};
#pragma unroll
            for (int other = 0; other < slices; ++other) total[0] += ((const float*)(smem + other * OWN_BYTES))[at];
            if (row < 0 || col >= Gemm::cols_of(s)) continue;
            float bias[1];
            const int line = Gemm::place_col(s, group, col);
            conv_bias<E, 1>(a, line, bias);
            conv_finish<E, float, false, 1>(a, (i64)row * conv_line<KIND>(s) + line, bias, total);
        }
    }
};

// ---------------------------------------- gradient of the weight, all taps at once

// The order of work in the kernels below: a unit is R rows of y of one image. One stage of shared memory holds the
// unit's dy, 64 filters in each line, and the rows of x that contribute to it, CT channels in each line, padding
// included. A tap is then only a shift by lines, and x is read from memory once for all taps. The lines of a row of y
// are padded to a multiple of eight. Lines of 16-bit numbers are 128 bytes, permuted by groups of 16 bytes as the
// matrix instructions of Hopper expect; lines of floats are padded. Lines of the padding hold zeros in dy, but may be
// multiplied by elements of x. An infinite element then gives NaN; its own sums are not finite either.
template <class T, class Geom, int R, int CT, int THREADS> struct ConvTaps {
    static_assert(
        Geom::SH == 1 && Geom::SW == 1 && Geom::DH == 1 && Geom::DW == 1 && Geom::G == 1, "taps must be shifts");
    static constexpr bool SWIZZLED = sizeof(T) == 2;
    static constexpr int V = 16 / (int)sizeof(T), FT = 64, WP = ceil_div(Geom::WO, 8) * 8, PX = WP + Geom::KW - 1;
    static_assert(Geom::C % V == 0 && Geom::F % V == 0 && (!SWIZZLED || CT == 64), "copies of 16 bytes");
    static constexpr int LINE_Y = SWIZZLED ? 64 : FT + 8, LINE_X = SWIZZLED ? 64 : CT + 8;
    static constexpr int Y_LINES = R * WP, X_LINES = (R + Geom::KH - 1) * PX;
    static constexpr int Y_BYTES = Y_LINES * LINE_Y * (int)sizeof(T),
                         X_BYTES = ceil_div(X_LINES, 8) * 8 * LINE_X * (int)sizeof(T), STAGE_BYTES = Y_BYTES + X_BYTES;
    static constexpr int UNITS_H = ceil_div(Geom::HO, R), UNITS = Geom::N * UNITS_H;
    static constexpr int F_TILES = ceil_div(Geom::F, FT), C_TILES = ceil_div(Geom::C, CT), TILES = F_TILES * C_TILES;

    template <int LINE> DEV T* place(char* base, int line, int slot) {
        if constexpr (SWIZZLED) return (T*)(base + line * 128 + ((slot ^ (line & 7)) << 4));
        else return (T*)base + line * LINE + slot * V;
    }
    DEV void fill(const Args& a, char* stage, int unit, int f0, int c0) {
        const int n = unit / UNITS_H, h0 = (unit - n * UNITS_H) * R;
        {
            constexpr int SLOTS = FT / V, ALONG = THREADS / SLOTS, COUNT = ceil_div(Y_LINES, ALONG);
            static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
            const int slot = threadIdx.x % SLOTS, first = threadIdx.x / SLOTS;
            const T* from =
                a.at<T>(slots::product::B) + ((i64)(n * Geom::HO + h0) * Geom::WO * Geom::F + f0 + slot * V);
            const bool inside = f0 + slot * V < Geom::F;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int line = first + i * ALONG, r = line / WP, w = line - r * WP;
                if (Y_LINES % ALONG == 0 || line < Y_LINES)
                    copy_async<16>(place<LINE_Y>(stage, line, slot), from + (r * Geom::WO + w) * Geom::F,
                        inside && w < Geom::WO && h0 + r < Geom::HO);
            }
        }
        {
            constexpr int SLOTS = CT / V, ALONG = THREADS / SLOTS, COUNT = ceil_div(X_LINES, ALONG);
            static_assert(THREADS % SLOTS == 0, "THREADS must be a multiple of SLOTS");
            const int slot = threadIdx.x % SLOTS, first = threadIdx.x / SLOTS;
            const T* from =
                a.at<T>(slots::product::A) + ((i64)(n * Geom::H + h0 - Geom::PH) * Geom::W * Geom::C + c0 + slot * V);
            const bool inside = c0 + slot * V < Geom::C;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int line = first + i * ALONG, r = line / PX, h = h0 + r - Geom::PH, w = line - r * PX - Geom::PW;
                if (X_LINES % ALONG == 0 || line < X_LINES)
                    copy_async<16>(place<LINE_X>(stage + Y_BYTES, line, slot), from + (r * Geom::W + w) * Geom::C,
                        inside && (u32)h < (u32)Geom::H && (u32)w < (u32)Geom::W);
            }
        }
    }
    // Rounds the elements that this thread copied to TF32, once for all warps that read them.
    template <int LINE, int LINES, int WIDTH> DEV void round_lines(char* base) {
        constexpr int SLOTS = WIDTH / V, ALONG = THREADS / SLOTS, COUNT = ceil_div(LINES, ALONG);
        const int slot = threadIdx.x % SLOTS, first = threadIdx.x / SLOTS;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int line = first + i * ALONG;
            if (LINES % ALONG == 0 || line < LINES) {
                float* const at = (float*)place<LINE>(base, line, slot);
                Vec<float, 4> v = load<float, 4>(at);
#pragma unroll
                for (int e = 0; e < 4; ++e) v.v[e] = __uint_as_float(to_tf32(v.v[e]));
                store<float, 4>(at, v);
            }
        }
    }
    DEV void round(char* stage) {
        round_lines<LINE_Y, Y_LINES, FT>(stage);
        round_lines<LINE_X, X_LINES, CT>(stage + Y_BYTES);
    }
    // Stores four neighbouring channels of one filter and tap: a partial sum, or the result.
    template <int SPLITS, bool ACC>
    DEV void put(const Args& a, int split, int f, int tap, int c, const float (&sum)[4]) {
        if (f >= Geom::F || c >= Geom::C) return;
        const i64 index = ((i64)f * Geom::TAPS + tap) * Geom::C + c;
        const float bias[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if constexpr (SPLITS > 1)
            conv_store_global(a.at<float>(slots::product::WORK) + (split * Geom::WEIGHT + index), sum);
        else conv_finish<Epilogue<false, NONE, false, NONE>, float, ACC, 4>(a, index, bias, sum);
    }
};

#if HAS_WARPGROUPS
// Adds the product of 64 by 16 and 16 by 192 elements to `d`.
#define CONV_WGMMA_OF(TYPE)                                                                                            \
    DEV void conv_wgmma(float (&d)[96], u64 a, u64 b, TYPE) {                                                          \
        asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                        \
                     "wgmma.mma_async.sync.aligned.m64n192k16.f32." #TYPE "." #TYPE " "                                \
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"         \
                     "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"        \
                     "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,"        \
                     "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"        \
                     "%90,%91,%92,%93,%94,%95}, %96, %97, p, 1, 1, 1, 1;\n}"                                           \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),             \
                       "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),         \
                       "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),      \
                       "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),      \
                       "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),      \
                       "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),      \
                       "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),      \
                       "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),      \
                       "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),      \
                       "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]),      \
                       "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]),      \
                       "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),      \
                       "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]),      \
                       "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])                                 \
                     : "l"(a), "l"(b));                                                                                \
    }
CONV_WGMMA_OF(bf16)
CONV_WGMMA_OF(f16)
#undef CONV_WGMMA_OF
#else
template <class T> DEV void conv_wgmma(float (&)[96], u64, u64, T) {}
#endif

// Gradient of the weight of a 3x3 kernel of stride and dilation 1, no groups, in 16-bit precisions, on Hopper (target
// sm_90a). A block computes 64 filters by 64 channels by all nine taps; each of its three warpgroups handles one row of
// taps: 64 by 192, whose three taps are three shifts of the same lines. Threads: 384. Blocks: SPLITS * tiles. A second
// phase adds the splits in a fixed order; WORK = SPLITS * weights * 4 bytes. Channels and filters must be multiples of
// eight. Overwrites or adds. Deterministic. Bytes moved: x (R + 2) / R times for each 64 filters, mostly from the
// second-level cache, dy once for each 64 channels, and the splits twice.
template <class T, class Geom, int R, int SPLITS, bool ACC> struct ConvWgmmaBwdW {
    static_assert(sizeof(T) == 2 && Geom::KH == 3 && Geom::KW == 3, "only kernels of 3x3 and numbers of 16 bits");
    static_assert(HAS_WARPGROUPS || sizeof(T) == 0, "the target must be sm_90a");
    static constexpr int THREADS = 384;
    using Taps = ConvTaps<T, Geom, R, 64, THREADS>;
    static_assert(Taps::Y_LINES % 16 == 0, "lines must fill whole instructions");
    // Copies are in flight for DEPTH stages; products read two more.
    static constexpr int STAGES = min_i(6, 230000 / Taps::STAGE_BYTES), DEPTH = STAGES - 2;
    static_assert(DEPTH >= 1, "there must be at least one stage");
    using Reduce =
        ConvReduce<Epilogue<false, NONE, false, NONE>, float, ACC, Geom::added(CONV_BACKWARD_W, false), THREADS>;
    static constexpr int PHASES = SPLITS > 1 ? 2 : 1, EACH = ceil_div(Taps::UNITS, SPLITS);
    static constexpr int blocks(int phase) {
        return phase == 0 ? SPLITS * Taps::TILES : Reduce::blocks(Geom::WEIGHT, SPLITS);
    }
    static constexpr int smem(int phase) { return phase == 0 ? STAGES * Taps::STAGE_BYTES + 1024 : Reduce::SMEM; }
    static constexpr long long WORK = SPLITS > 1 ? SPLITS * Geom::WEIGHT * 4 : 0;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) product(a, block, smem);
        else Reduce::run(a, block, smem, Geom::WEIGHT, Geom::TAPS * Geom::C, SPLITS);
    }
    DEV void product(const Args& a, int block, char* smem) {
        smem += (1024 - shared_address(smem) % 1024) % 1024;
        const int c0 = block % Taps::C_TILES * 64, f0 = block / Taps::C_TILES % Taps::F_TILES * 64,
                  split = block / Taps::TILES;
        const int first = min_i(split * EACH, Taps::UNITS), count = min_i(first + EACH, Taps::UNITS) - first,
                  tap_row = threadIdx.x / 128;
        float d[96];
#pragma unroll
        for (int i = 0; i < 96; ++i) d[i] = 0.0f;
#pragma unroll 1
        for (int step = 0; step < DEPTH; ++step) {
            if (step < count) Taps::fill(a, smem + step * Taps::STAGE_BYTES, first + step, f0, c0);
            copy_commit();
        }
        int now = 0, next = DEPTH;
#pragma unroll 1
        for (int step = 0; step < count; ++step) {
            copy_wait<DEPTH - 1>();
            warpgroup_sees_memory();
            // The copies of all threads for this step are complete, and so are all products of the step before the
            // last.
            __syncthreads();
            const u32 y = shared_address(smem + now * Taps::STAGE_BYTES),
                      x = y + Taps::Y_BYTES + tap_row * Taps::PX * 128;
            warpgroup_fence();
#pragma unroll
            for (int k = 0; k < Taps::Y_LINES; k += 16) {
                const int line = k / Taps::WP * Taps::PX + k % Taps::WP,
                          other = (k + 8) / Taps::WP * Taps::PX + (k + 8) % Taps::WP;
                conv_wgmma(d, warpgroup_matrix(y + k * 128, 1024, 1024),
                    warpgroup_matrix(x + line * 128, 128, (other - line) * 128), T{});
            }
            warpgroup_commit();
            if (step + DEPTH < count) Taps::fill(a, smem + next * Taps::STAGE_BYTES, first + step + DEPTH, f0, c0);
            copy_commit();
            warpgroup_wait<1>(d);
            now = now + 1 == STAGES ? 0 : now + 1;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
        warpgroup_wait<0>(d);
        copy_wait<0>();
        const int lane = threadIdx.x % 32, row = f0 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        const bool odd = lane % 2 != 0;
#pragma unroll
        for (int j = 0; j < 12; ++j) {
            // A lane has two neighbouring columns of each of two tiles of eight columns; pairs of lanes exchange values
            // so that each has four columns of one tile.
            const int col = j * 16 + lane % 2 * 8 + lane % 4 / 2 * 4;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float* left = &d[j * 8 + i * 2];
                const float* right = &d[j * 8 + 4 + i * 2];
                const float p = __shfl_xor_sync(0xffffffffu, odd ? left[0] : right[0], 1),
                            q = __shfl_xor_sync(0xffffffffu, odd ? left[1] : right[1], 1);
                const float sum[4] = {odd ? p : left[0], odd ? q : left[1], odd ? right[0] : p, odd ? right[1] : q};
                Taps::template put<SPLITS, ACC>(a, split, row + i * 8, tap_row * 3 + j / 4, c0 + col % 64, sum);
            }
        }
    }
};

// The same with TF32 factors and the matrix instructions of all GPUs. A block computes 64 filters by CT (32 or 64)
// channels by all nine taps, a warp 64 by 48 of one row of taps. If CT is 32, each half of the warps handles every
// other group of positions, and their sums are added in shared memory. Threads: 384. Alignment: multiples of four.
// Everything else is as above.
template <class Geom, int R, int CT, int STAGES, int SPLITS, bool ACC> struct ConvTapsBwdW {
    static_assert(Geom::KH == 3 && Geom::KW == 3 && (CT == 32 || CT == 64) && STAGES >= 3, "3x3, 3 stages");
    static constexpr int ACROSS = CT / 16, TURNS = 4 / ACROSS, THREADS = 384;
    using Taps = ConvTaps<float, Geom, R, CT, THREADS>;
    using Reduce =
        ConvReduce<Epilogue<false, NONE, false, NONE>, float, ACC, Geom::added(CONV_BACKWARD_W, false), THREADS>;
    static constexpr int PHASES = SPLITS > 1 ? 2 : 1, EACH = ceil_div(Taps::UNITS, SPLITS);
    static constexpr int blocks(int phase) {
        return phase == 0 ? SPLITS * Taps::TILES : Reduce::blocks(Geom::WEIGHT, SPLITS);
    }
    static constexpr int smem(int phase) {
        return phase == 0 ? max_i(STAGES * Taps::STAGE_BYTES, TURNS > 1 ? 96 * 192 * 4 : 0) : Reduce::SMEM;
    }
    static constexpr long long WORK = SPLITS > 1 ? SPLITS * Geom::WEIGHT * 4 : 0;

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) product(a, block, smem);
        else Reduce::run(a, block, smem, Geom::WEIGHT, Geom::TAPS * Geom::C, SPLITS);
    }
    DEV void product(const Args& a, int block, char* smem) {
        const int c0 = block % Taps::C_TILES * CT, f0 = block / Taps::C_TILES % Taps::F_TILES * 64,
                  split = block / Taps::TILES;
        const int first = min_i(split * EACH, Taps::UNITS), count = min_i(first + EACH, Taps::UNITS) - first;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32,
                  tap_row = TURNS > 1 ? warp / ACROSS % 3 : warp / ACROSS, turn = TURNS > 1 ? warp / (3 * ACROSS) : 0,
                  g = lane / 4, t = lane % 4, pair0 = warp % ACROSS * 3;
        // The two fragment rows of a thread are neighbouring filters, 2 g and 2 g + 1.
        int shift[3];
#pragma unroll
        for (int q = 0; q < 3; ++q)
            shift[q] = (tap_row * Taps::PX + t + (pair0 + q) * 16 / CT) * Taps::LINE_X + (pair0 + q) * 16 % CT + g;
        float acc[4][6][4];
        clear_sums(acc);
#pragma unroll 1
        for (int step = 0; step < STAGES - 1; ++step) {
            if (step < count) Taps::fill(a, smem + step * Taps::STAGE_BYTES, first + step, f0, c0);
            copy_commit();
        }
        copy_wait<STAGES - 2>();
        if (count > 0) Taps::round(smem);
#pragma unroll 1
        for (int step = 0; step < count; ++step) {
            // The elements of this step are rounded, and no thread still reads the stage that is filled next.
            __syncthreads();
            if (step + STAGES - 1 < count)
                Taps::fill(
                    a, smem + (step + STAGES - 1) % STAGES * Taps::STAGE_BYTES, first + step + STAGES - 1, f0, c0);
            copy_commit();
            copy_wait<STAGES - 2>();
            char* const after = smem + (step + 1) % STAGES * Taps::STAGE_BYTES;
            // Some warps round first and others multiply first, so that both kinds of execution units are busy.
            if (warp % 12 < 4 && step + 1 < count) Taps::round(after);
            const float* const y = (const float*)(smem + step % STAGES * Taps::STAGE_BYTES) + t * Taps::LINE_Y + g * 2;
            const float* const x = (const float*)(smem + step % STAGES * Taps::STAGE_BYTES + Taps::Y_BYTES);
#pragma unroll 8
            for (int step8 = 0; step8 < Taps::Y_LINES; step8 += 8 * TURNS) {
                const int k = step8 + turn * 8;
                if (TURNS > 1 && Taps::Y_LINES % 16 != 0 && k >= Taps::Y_LINES) break;
                const int line = k / Taps::WP * Taps::PX + k % Taps::WP;
                u32 fa[4][4], fb[6][2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const Vec<float, 2> v = load<float, 2>(y + (k + half * 4) * Taps::LINE_Y + i * 16);
                        fa[i][half * 2] = __float_as_uint(v.v[0]), fa[i][half * 2 + 1] = __float_as_uint(v.v[1]);
                    }
#pragma unroll
                    for (int j = 0; j < 6; ++j)
                        fb[j][half] = __float_as_uint(x[(line + half * 4) * Taps::LINE_X + shift[j / 2] + j % 2 * 8]);
                }
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j < 6; ++j) mma_tf32(acc[i][j], fa[i], fb[j]);
            }
            if (warp % 12 >= 4 && step + 1 < count) Taps::round(after);
        }
        copy_wait<0>();
        if constexpr (TURNS > 1) {
            float* const scratch = (float*)smem + threadIdx.x % 192;
            __syncthreads();
            if (turn == 1) {
#pragma unroll
                for (int i = 0; i < 96; ++i) scratch[i * 192] = acc[i / 24][i / 4 % 6][i % 4];
            }
            __syncthreads();
            if (turn == 1) return;
#pragma unroll
            for (int i = 0; i < 96; ++i) acc[i / 24][i / 4 % 6][i % 4] += scratch[i * 192];
        }
        const bool odd = lane % 2 != 0;
#pragma unroll
        for (int q = 0; q < 3; ++q) {
            // A lane has two neighbouring columns of each of two tiles of eight columns; pairs of lanes exchange values
            // so that each has four columns of one tile.
            const int col = (pair0 + q) * 16, c = c0 + col % CT + lane % 2 * 8 + lane % 4 / 2 * 4;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float* left = &acc[i / 2][q * 2][i % 2 * 2];
                const float* right = &acc[i / 2][q * 2 + 1][i % 2 * 2];
                const float m = __shfl_xor_sync(0xffffffffu, odd ? left[0] : right[0], 1),
                            n = __shfl_xor_sync(0xffffffffu, odd ? left[1] : right[1], 1);
                const float sum[4] = {odd ? m : left[0], odd ? n : left[1], odd ? right[0] : m, odd ? right[1] : n};
                Taps::template put<SPLITS, ACC>(
                    a, split, f0 + i / 2 * 16 + g * 2 + i % 2, tap_row * 3 + col / CT, c, sum);
            }
        }
    }
};

// ---------------------------------------- images of few channels

// Sizes of `ConvThin`: rows of x of a unit of `rows` rows of y, and elements of a line of x right of the image.
template <class S> __host__ __device__ constexpr int conv_thin_rows(const S& s, int rows) {
    return (rows - 1) * s.sh + (s.kh - 1) * s.dh + 1;
}
template <class S> __host__ __device__ constexpr int conv_thin_right(const S& s) {
    return max_i(0, (s.wo - 1) * s.sw + (s.kw - 1) * s.dw + 1 - s.pw - s.w) * s.c;
}
__host__ __device__ constexpr int conv_round_up(int n, int step) { return (n + step - 1) / step * step; }

// What `ConvThin` computes from a geometry: constants, or from numbers. The upper half of number 8 is the number of
// rows of y of a unit.
template <class T, class Geom, int R, bool FIXED = Geom::FIXED> struct ConvThinSizes : ConvSizes<Geom> {
    using S = ConvSizes<Geom>;
    static constexpr int V = 16 / (int)sizeof(T);
    static constexpr int k = S::taps * S::c, line = S::w * S::c, unit_rows = R, rows = conv_thin_rows(S(), R);
    static constexpr int left = conv_round_up(S::pw * S::c, V);
    static constexpr int pitch = conv_round_up(left + line + conv_thin_right(S()), V);
    static constexpr int units_h = ceil_div(S::ho, R), units = S::n * units_h, lines = R * S::wo;
    static constexpr i64 weight = (i64)S::f * k;
    constexpr ConvThinSizes() {}
    __device__ __forceinline__ constexpr explicit ConvThinSizes(const Args&) {}
};
template <class T, class Geom, int R> struct ConvThinSizes<T, Geom, R, false> : ConvSizes<Geom, false> {
    int k, line, unit_rows, rows, left, pitch, units_h, units, lines;
    i64 weight;
    __device__ __forceinline__ explicit ConvThinSizes(const Args& a) : ConvSizes<Geom, false>(a) {
        constexpr int V = 16 / (int)sizeof(T);
        k = this->taps * this->c, line = this->w * this->c;
        unit_rows = (int)((i64)Number<ANY, 8>(a) >> 32), rows = conv_thin_rows(*this, unit_rows);
        left = conv_round_up(this->pw * this->c, V), pitch = conv_round_up(left + line + conv_thin_right(*this), V);
        units_h = divide(this->ho + unit_rows - 1, unit_rows), units = this->n * units_h, lines = unit_rows * this->wo;
        weight = (i64)this->f * k;
    }
};

// A unit is R rows of y of one image. The rows of x that contribute to it are in shared memory with their padding, so
// that the offset of a factor is the sum of an offset of the position and an offset of tap and channel.
template <class T, class Geom, int R, int THREADS> struct ConvThin {
    using S = ConvThinSizes<T, Geom, R>;
    using By = typename DivisorOf<Geom::FIXED>::Type;
    static constexpr int VX = Geom::template copied_line<T>();
    const S s;
    // The positions of a row of y, the copies of a row of x, and the units of an image.
    const By wo, copied, units_h;

    __device__ __forceinline__ explicit ConvThin(const Args& a)
        : s(a), wo(s.wo), copied(s.line / VX), units_h(s.units_h) {}
    // Bytes of the rows of x of a unit; for general members, the most that they may have.
    static constexpr int bytes() {
        if constexpr (Geom::FIXED) {
            static_assert(S::g == 1, "no groups");
            return S::rows * S::pitch * (int)sizeof(T);
        } else {
            return 12 << 10;
        }
    }

    __device__ __forceinline__ int line_offset(int p) const {
        const int r = (int)quotient((u32)p, wo), w = p - r * s.wo;
        return r * s.sh * s.pitch + s.left + (w * s.sw - s.pw) * s.c;
    }
    __device__ __forceinline__ int tap_offset(int k) const {
        const int tap = (int)quotient((u32)k, By(s.c)), i = (int)quotient((u32)tap, By(s.kw));
        return i * s.dh * s.pitch + (tap - i * s.kw) * s.dw * s.c + k - tap * s.c;
    }
    // The columns left and right of the image stay zero.
    __device__ __forceinline__ void clear(T* x) const {
        const By pitch(s.pitch);
        for (int i = threadIdx.x; i < 2 * s.rows * s.pitch; i += THREADS) {
            const int at = i - (int)quotient((u32)i, pitch) * s.pitch;
            if (at < s.left || at >= s.left + s.line) x[i] = T{};
        }
    }
    __device__ __forceinline__ void fill(const Args& a, T* x, int unit) const {
        const int count = s.line / VX, copies = s.rows * count;
        const int n = (int)quotient((u32)unit, units_h), h0 = (unit - n * s.units_h) * s.unit_rows * s.sh - s.ph;
        for (int i = threadIdx.x; i < copies; i += THREADS) {
            const int r = (int)quotient((u32)i, copied), at = (i - r * count) * VX;
            const bool valid = (u32)(h0 + r) < (u32)s.h;
            const T* from = a.at<T>(slots::product::A) + ((i64)(n * s.h + h0 + r) * s.line + at);
            T* to = x + r * s.pitch + s.left + at;
            if constexpr (VX * sizeof(T) >= 4) {
                copy_async<VX * (int)sizeof(T)>(to, from, valid);
            } else {
                T value{};
                if (valid) value = *from;
                *to = value;
            }
        }
    }
};

DEV u32 conv_pair(bf16 low, bf16 high) { return (u32)low.bits | (u32)high.bits << 16; }
DEV u32 conv_pair(f16 low, f16 high) { return (u32)low.bits | (u32)high.bits << 16; }
DEV u32 conv_pair(float, float) { return 0; }

// Gradient of the weight if a filter has few weights (at most 40): dy is loaded from memory to registers once, without
// shared memory. A warp processes 32 bytes of positions at a time by FT (16, 32 or 64) filters by all weights of a
// filter, on tensor cores (TF32 for float). The sums of the warps of a block are added in shared memory. Each tile of
// filters has SPLITS blocks; a second phase adds the splits in a fixed order (WORK = SPLITS * weights * 4 bytes).
// Threads: 256. Filters must be a multiple of FT. Any stride, padding and dilation; no groups. Overwrites or adds.
// Deterministic. Bytes moved: x and dy once. General members are compiled for TILES_ tiles of eight weights of a
// filter, and HELD chunks of a unit for each warp, or more than there are; they read SPLITS as number 9.
template <class T, class Geom, int FT, int R, i64 SPLITS_, bool ACC, int TILES_ = 0, int HELD = 0> struct ConvThinBwdW {
    static constexpr int THREADS = 256, WARPS = THREADS / 32;
    using Thin = ConvThin<T, Geom, R, THREADS>;
    using S = typename Thin::S;
    using Splits = Number<SPLITS_, 9>;
    // A thread has groups of VL neighbouring filters, and LT neighbouring positions of a chunk.
    static constexpr int FV = FT / 8, VL = min_i(FV, 16 / (int)sizeof(T)), CHUNK = 32 / (int)sizeof(T), LT = CHUNK / 4;
    static constexpr int tiles() {
        if constexpr (Geom::FIXED) return ceil_div(S::k, 8);
        else return TILES_;
    }
    static constexpr int held_chunks() {
        if constexpr (Geom::FIXED) return ceil_div(ceil_div(S::lines, CHUNK), WARPS);
        else return HELD;
    }
    // Whether a unit may have fewer lines than its chunks.
    static constexpr bool ragged() {
        if constexpr (Geom::FIXED) return S::lines % (CHUNK * WARPS) != 0 || S::ho % R != 0;
        else return true;
    }
    static constexpr int TILES = tiles(), PER_WARP = held_chunks();
    static constexpr bool RAGGED = ragged();
    static_assert(FT % 16 == 0 && TILES > 0 && TILES <= 5 && PER_WARP > 0, "no such tile");
    static_assert(SPLITS_ > 1 || SPLITS_ == ANY, "one block for each tile needs no second phase");
    using Reduce =
        ConvReduce<Epilogue<false, NONE, false, NONE>, float, ACC, Geom::added(CONV_BACKWARD_W, false), THREADS>;
    static constexpr int PHASES = 2;
    static constexpr int LINE = TILES * 8 + 1;
    static constexpr int blocks_of(int phase, int filters, i64 weight, int splits) {
        return phase == 0 ? splits * (filters / FT) : Reduce::blocks(weight, splits);
    }
    static constexpr int blocks(int phase) { return blocks_of(phase, S::f, S::weight, (int)SPLITS_); }
    DEV int blocks_for(const Args& a, int phase) {
        const S s(a);
        return blocks_of(phase, s.f, s.weight, (int)Splits(a));
    }
    static constexpr int smem(int phase) {
        return phase == 0 ? max_i(2 * Thin::bytes(), WARPS * FT * LINE * 4) : Reduce::SMEM;
    }
    static constexpr long long work() {
        if constexpr (Geom::FIXED) {
            static_assert(S::f % FT == 0, "the tile does not fit these filters");
            return SPLITS_ * S::weight * 4;
        } else {
            return 0;
        }
    }
    static constexpr long long WORK = work();
    // As words, so that one instruction makes a pair of 16-bit numbers.
    static constexpr int WORDS = VL * (int)sizeof(T) / 4, PER_WORD = 4 / (int)sizeof(T);
    struct Held { Vec<u32, WORDS> v[LT][FV / VL]; };

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        if constexpr (PHASE == 0) {
            product(a, block, smem);
        } else {
            const S s(a);
            Reduce::run(a, block, smem, s.weight, s.k, (int)Splits(a));
        }
    }
    // Lines of a unit that exist.
    DEV int lines_of(const Thin& thin, int unit) {
        if constexpr (Geom::FIXED) {
            if constexpr (S::ho % R == 0) return S::lines;
        }
        const int row = unit - (int)quotient((u32)unit, thin.units_h) * thin.s.units_h;
        return min_i(thin.s.unit_rows, thin.s.ho - row * thin.s.unit_rows) * thin.s.wo;
    }
    DEV void product(const Args& a, int block, char* smem) {
        const Thin thin(a);
        const S& s = thin.s;
        const int f_tiles = s.f / FT, each = divide(s.units + (int)Splits(a) - 1, (int)Splits(a));
        const int split = divide(block, f_tiles), f0 = (block - split * f_tiles) * FT;
        const int first = min_i(split * each, s.units), end = min_i(first + each, s.units);
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        T* const x = (T*)smem;
        Held held[PER_WARP];
        int line_at[PER_WARP][LT], tap_at[TILES];
#pragma unroll
        for (int i = 0; i < PER_WARP; ++i)
#pragma unroll
            for (int e = 0; e < LT; ++e)
                line_at[i][e] = thin.line_offset(min_i((warp + i * WARPS) * CHUNK + t * LT + e, s.lines - 1));
#pragma unroll
        for (int j = 0; j < TILES; ++j) tap_at[j] = thin.tap_offset(min_i(j * 8 + g, s.k - 1));
        const auto fetch = [&](int unit, int i) {
            const int n = (int)quotient((u32)unit, thin.units_h), lines = lines_of(thin, unit);
            const T* from = a.at<T>(slots::product::B) +
                ((i64)(n * s.ho + (unit - n * s.units_h) * s.unit_rows) * s.wo * s.f + f0 + g * VL);
#pragma unroll
            for (int e = 0; e < LT; ++e) {
                const int p = (warp + i * WARPS) * CHUNK + t * LT + e;
#pragma unroll
                for (int v = 0; v < FV / VL; ++v) {
                    held[i].v[e][v] = Vec<u32, WORDS>{};
                    if (unit < end && (!RAGGED || p < lines))
                        held[i].v[e][v] = load<u32, WORDS>((const u32*)(from + p * s.f + v * 8 * VL));
                }
            }
        };
#pragma unroll
        for (int i = 0; i < PER_WARP; ++i) fetch(first, i);
        thin.clear(x);
        if (first < end) thin.fill(a, x, first);
        copy_commit();
        float acc[FT / 16][TILES][4];
        clear_sums(acc);
#pragma unroll 1
        for (int unit = first; unit < end; ++unit) {
            const T* const now = x + (unit - first) % 2 * (s.rows * s.pitch);
            if (unit + 1 < end) thin.fill(a, x + (unit + 1 - first) % 2 * (s.rows * s.pitch), unit + 1);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
#pragma unroll
            for (int i = 0; i < PER_WARP; ++i) {
                u32 fa[FT / 16][4];
#pragma unroll
                for (int v = 0; v < FV; ++v) {
                    const auto word = [&](int e) { return held[i].v[e][v / VL].v[v % VL / PER_WORD]; };
                    if constexpr (sizeof(T) == 2) {
                        fa[v / 2][v % 2] = __byte_perm(word(0), word(1), v % 2 == 0 ? 0x5410 : 0x7632);
                        fa[v / 2][v % 2 + 2] = __byte_perm(word(2), word(3), v % 2 == 0 ? 0x5410 : 0x7632);
                    } else {
                        fa[v / 2][v % 2] = to_tf32(__uint_as_float(word(0)));
                        fa[v / 2][v % 2 + 2] = to_tf32(__uint_as_float(word(1)));
                    }
                }
                bool inside[LT];
#pragma unroll
                for (int e = 0; e < LT; ++e)
                    inside[e] = !RAGGED || (warp + i * WARPS) * CHUNK + t * LT + e < lines_of(thin, unit);
                fetch(unit + 1, i);
#pragma unroll
                for (int j = 0; j < TILES; ++j) {
                    T b[LT];
#pragma unroll
                    for (int e = 0; e < LT; ++e) {
                        b[e] = now[line_at[i][e] + tap_at[j]];
                        if (!inside[e]) b[e] = T{};
                    }
                    u32 fb[2];
                    if constexpr (sizeof(T) == 2) fb[0] = conv_pair(b[0], b[1]), fb[1] = conv_pair(b[2], b[3]);
                    else fb[0] = to_tf32(to_float(b[0])), fb[1] = to_tf32(to_float(b[1]));
#pragma unroll
                    for (int m = 0; m < FT / 16; ++m) conv_mma(acc[m][j], fa[m], fb, T{});
                }
            }
            __syncthreads();
        }
        copy_wait<0>();
        __syncthreads();
        float* const scratch = (float*)smem;
#pragma unroll
        for (int v = 0; v < FV; ++v)
#pragma unroll
            for (int j = 0; j < TILES; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    scratch[(warp * FT + v / VL * 8 * VL + g * VL + v % VL) * LINE + j * 8 + t * 2 + e] =
                        acc[v / 2][j][v % 2 * 2 + e];
        __syncthreads();
        float* const part = a.at<float>(slots::product::WORK) + (split * s.weight + (i64)f0 * s.k);
        const typename Thin::By by(s.k);
        for (int i = threadIdx.x; i < FT * s.k; i += THREADS) {
            const int f = (int)quotient((u32)i, by), k = i - f * s.k;
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) sum += scratch[(w * FT + f) * LINE + k];
            part[i] = sum;
        }
    }
};

// Forward pass if a filter has few weights (at most 32): the weights stay in registers, and y is stored from registers.
// A warp processes 16 positions at a time by FT (32 or 64) filters, on tensor cores (TF32 for float). Threads: 256.
// Blocks: BLOCKS * tiles of filters, each looping over units. Filters must be a multiple of FT. Any stride, padding and
// dilation; no groups. Overwrites. Deterministic. Bytes moved: x and y once. General members are compiled for STEPS_
// steps of a filter's weights, or more than there are; they read BLOCKS as number 9.
template <class T, class Geom, int FT, int R, i64 BLOCKS_, class E, int STEPS_ = 0> struct ConvThinForward {
    static constexpr int THREADS = 256, WARPS = THREADS / 32;
    using Thin = ConvThin<T, Geom, R, THREADS>;
    using S = typename Thin::S;
    using Blocks = Number<BLOCKS_, 9>;
    static constexpr int STEP = 32 / (int)sizeof(T), KT = STEP / 4, TILES = FT / 8, MINE = FT / 4;
    static constexpr int VL = min_i(MINE, 16 / (int)sizeof(T));
    static constexpr int steps() {
        if constexpr (Geom::FIXED) {
            static_assert(S::f % FT == 0, "the tile does not fit these filters");
            return ceil_div(S::k, STEP);
        } else {
            return STEPS_;
        }
    }
    static constexpr int STEPS = steps();
    static_assert(FT % 32 == 0 && STEPS > 0 && STEPS * STEP <= 32, "the weights do not fit the registers");
    static constexpr int PHASES = 1;
    static constexpr long long WORK = 0;
    static constexpr int blocks(int) { return (int)BLOCKS_ * (S::f / FT); }
    DEV int blocks_for(const Args& a, int) { return (int)Blocks(a) * (S(a).f / FT); }
    static constexpr int smem(int) { return 2 * Thin::bytes(); }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Thin thin(a);
        const S& sizes = thin.s;
        const int f_tiles = sizes.f / FT, start = divide(block, f_tiles), f0 = (block - start * f_tiles) * FT;
        const int blocks = (int)Blocks(a), lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        T* const x = (T*)smem;
        thin.clear(x);
        if (start < sizes.units) thin.fill(a, x, start);
        copy_commit();
        // Filters are assigned to columns of fragments so that a thread has groups of VL neighbours, and the stores of
        // four threads fill 64 bytes.
        u32 fb[TILES][STEPS][2];
        int tap_at[STEPS][KT];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
#pragma unroll
            for (int e = 0; e < KT; ++e) tap_at[s][e] = thin.tap_offset(min_i(s * STEP + t * KT + e, sizes.k - 1));
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                const int mine = j * 2 + g % 2;
                const T* from =
                    a.at<T>(slots::product::B) + (f0 + mine / VL * 4 * VL + g / 2 * VL + mine % VL) * sizes.k;
                T w[KT];
#pragma unroll
                for (int e = 0; e < KT; ++e) {
                    const int k = s * STEP + t * KT + e;
                    w[e] = T{};
                    if (k < sizes.k) w[e] = from[k];
                }
                if constexpr (sizeof(T) == 2) fb[j][s][0] = conv_pair(w[0], w[1]), fb[j][s][1] = conv_pair(w[2], w[3]);
                else fb[j][s][0] = to_tf32(to_float(w[0])), fb[j][s][1] = to_tf32(to_float(w[1]));
            }
        }
        float bias[MINE / VL][VL];
#pragma unroll
        for (int v = 0; v < MINE / VL; ++v) conv_bias<E, VL>(a, f0 + (v * 4 + t) * VL, bias[v]);
        int parity = 0;
#pragma unroll 1
        for (int unit = start; unit < sizes.units; unit += blocks) {
            const T* const now = x + parity * (sizes.rows * sizes.pitch);
            parity ^= 1;
            if (unit + blocks < sizes.units) thin.fill(a, x + parity * (sizes.rows * sizes.pitch), unit + blocks);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            const int n = (int)quotient((u32)unit, thin.units_h), row0 = (unit - n * sizes.units_h) * sizes.unit_rows,
                      lines = min_i(sizes.unit_rows, sizes.ho - row0) * sizes.wo;
            const i64 out = ((i64)(n * sizes.ho + row0) * sizes.wo) * sizes.f + f0 + t * VL;
#pragma unroll 1
            for (int chunk = warp; chunk * 16 < sizes.lines; chunk += WARPS) {
                const int p[2] = {chunk * 16 + g, chunk * 16 + g + 8};
                const int at[2] = {
                    thin.line_offset(min_i(p[0], sizes.lines - 1)), thin.line_offset(min_i(p[1], sizes.lines - 1))};
                float acc[TILES][4];
#pragma unroll
                for (int j = 0; j < TILES; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) acc[j][e] = 0.0f;
#pragma unroll
                for (int s = 0; s < STEPS; ++s) {
                    u32 fa[4];
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        T v[KT];
#pragma unroll
                        for (int e = 0; e < KT; ++e) {
                            v[e] = now[at[h] + tap_at[s][e]];
                            if ((!Geom::FIXED || s == STEPS - 1) && s * STEP + t * KT + e >= sizes.k) v[e] = T{};
                        }
                        if constexpr (sizeof(T) == 2) fa[h] = conv_pair(v[0], v[1]), fa[h + 2] = conv_pair(v[2], v[3]);
                        else fa[h] = to_tf32(to_float(v[0])), fa[h + 2] = to_tf32(to_float(v[1]));
                    }
#pragma unroll
                    for (int j = 0; j < TILES; ++j) conv_mma(acc[j], fa, fb[j][s], T{});
                }
#pragma unroll
                for (int h = 0; h < 2; ++h)
                    if (p[h] < lines) {
#pragma unroll
                        for (int v = 0; v < MINE / VL; ++v) {
                            float sum[VL];
#pragma unroll
                            for (int e = 0; e < VL; ++e) sum[e] = acc[(v * VL + e) / 2][h * 2 + e % 2];
                            conv_finish<E, T, false, VL>(a, out + p[h] * sizes.f + v * 4 * VL, bias[v], sum);
                        }
                    }
            }
            __syncthreads();
        }
    }
};

// ---------------------------------------- few channels a group

// Forward pass or gradient of x for groups of few channels, mainly depthwise, without tiles: a thread computes V
// neighbouring channels of one position (V > 1 only if groups have one channel and one filter) and reads its inputs
// directly; neighbours share them in the first-level cache. Threads: 256. Blocks: results / (256 V). Overwrites.
// Deterministic. Bytes moved past the first-level cache: both images once.
template <int KIND, class T, class Geom, class E> struct ConvDirect {
    static constexpr bool FWD = KIND == CONV_FORWARD;
    using S = ConvSizes<Geom>;
    using R = ConvAxis<FWD, Geom::SH, Geom::DH>;
    using Q = ConvAxis<FWD, Geom::SW, Geom::DW>;
    static constexpr int V = Geom::template direct<T>();
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr long long WORK = 0;
    static constexpr int blocks(int) { return ceil_div(conv_results<KIND>(S()), THREADS * V); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(conv_results<KIND>(S(a)), THREADS * V); }
    static constexpr int smem(int) { return 0; }

    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const int out_h = FWD ? s.ho : s.h, out_w = FWD ? s.wo : s.w, in_h = FWD ? s.h : s.ho, in_w = FWD ? s.w : s.wo;
        // Elements of a line of the result and of the gathered image, and channels of a group of each.
        const int line = conv_line<KIND>(s), gathered = FWD ? s.c : s.f, each = FWD ? s.cg : s.fg,
                  own = FWD ? s.fg : s.cg;
        const i64 index = ((i64)block * THREADS + threadIdx.x) * V;
        if (index >= conv_results<KIND>(s)) return;
        const int position = (int)(index / line), ch = (int)(index - (i64)position * line),
                  n = position / (out_h * out_w);
        const int oh = position / out_w - n * out_h, ow = position % out_w, group = ch / own;
        // Position i of residue class `oh` of the gradient of x; the forward pass has one class.
        const R rows(FWD ? 0 : (oh + s.ph) % s.sh, s.h, s.ho, s.kh, s.ph, s.sh, s.dh);
        const Q cols(FWD ? 0 : (ow + s.pw) % s.sw, s.w, s.wo, s.kw, s.pw, s.sw, s.dw);
        const int h0 = rows.origin + (oh - rows.out0) / rows.out_step * rows.step,
                  w0 = cols.origin + (ow - cols.out0) / cols.out_step * cols.step;
        float sum[V];
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] = 0.0f;
        for (int i = 0; i < rows.taps; ++i) {
            const int h = h0 + rows.offset0 + i * rows.offset_step;
            if ((u32)h >= (u32)in_h) continue;
            for (int j = 0; j < cols.taps; ++j) {
                const int w = w0 + cols.offset0 + j * cols.offset_step;
                if ((u32)w >= (u32)in_w) continue;
                const int tap = (rows.tap0 + i * rows.tap_step) * s.kw + cols.tap0 + j * cols.tap_step;
                const T* from = a.at<T>(slots::product::A) + (((i64)n * in_h + h) * in_w + w) * gathered + group * each;
                if constexpr (V > 1) {
                    const Vec<T, V> x = load<T, V>(from);
#pragma unroll
                    for (int v = 0; v < V; ++v)
                        sum[v] = fmaf(to_float(x.v[v]),
                            to_float(a.at<T>(slots::product::B)[(ch + v) * s.taps + tap]), sum[v]);
                } else {
                    for (int c = 0; c < each; ++c) {
                        const int weight = FWD ? (ch * s.taps + tap) * s.cg + c
                                               : ((group * s.fg + c) * s.taps + tap) * s.cg + ch % s.cg;
                        sum[0] = fmaf(to_float(from[c]), to_float(a.at<T>(slots::product::B)[weight]), sum[0]);
                    }
                }
            }
        }
        float bias[V];
        conv_bias<E, V>(a, ch, bias);
        conv_finish<E, T, false, V>(a, index, bias, sum);
    }
};

// Gradient of the weight for groups of few channels: a warp handles 32 filters, one for each lane, and every eighth
// position of its block's range; a thread accumulates HOLD of the filter's weights. Threads: 256. Blocks: SPLITS *
// filters / 32 * weights of a filter / HOLD; the second phase adds the splits (WORK = SPLITS * weights * 4 bytes).
// Overwrites or adds. Deterministic. Bytes moved: x and dy once for each HOLD weights of a filter.
template <class T, class Geom, i64 SPLITS_, bool ACC, int HOLD = min_i(Geom::TAPS * Geom::CG, 9)>
struct ConvDirectBwdW {
    using S = ConvSizes<Geom>;
    using Splits = Number<SPLITS_, 9>;
    static constexpr bool SPLIT = SPLITS_ != 1;
    static constexpr int PHASES = SPLIT ? 2 : 1, THREADS = 256, WARPS = THREADS / 32;
    using E = Epilogue<false, NONE, false, NONE>;
    using Reduce = ConvReduce<E, float, ACC, Geom::added(CONV_BACKWARD_W, false), THREADS>;
    static constexpr long long WORK = SPLIT ? SPLITS_ * Geom::results(CONV_BACKWARD_W) * 4 : 0;
    // Weights of a filter, and all of them; blocks across the filters, and across the weights of one.
    static constexpr int own(const S& s) { return conv_line<CONV_BACKWARD_W>(s); }
    static constexpr i64 all(const S& s) { return (i64)s.f * own(s); }
    static constexpr int columns(const S& s) { return ceil_div(s.f, 32); }
    static constexpr int chunks(const S& s) { return ceil_div(own(s), HOLD); }
    static constexpr int blocks_of(const S& s, int splits, int phase) {
        return phase == 0 ? splits * chunks(s) * columns(s) : Reduce::blocks(all(s), splits);
    }
    static constexpr int blocks(int phase) { return blocks_of(S(), (int)SPLITS_, phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(S(a), (int)Splits(a), phase); }
    static constexpr int smem(int phase) { return phase == 0 ? THREADS * HOLD * 4 : Reduce::SMEM; }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const S s(a);
        const int splits = (int)Splits(a);
        if constexpr (PHASE == 1) {
            Reduce::run(a, block, smem, all(s), own(s), splits);
        } else {
            const int positions = s.n * s.ho * s.wo, each = ceil_div(positions, splits), across = columns(s),
                      down = chunks(s);
            const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
            const int f = block % across * 32 + lane, k0 = block / across % down * HOLD,
                      split = block / (across * down);
            const int channel = f / s.fg * s.cg, end = min_i((split + 1) * each, positions);
            float acc[HOLD];
#pragma unroll
            for (int e = 0; e < HOLD; ++e) acc[e] = 0.0f;
            if (f < s.f) {
                for (int p = split * each + warp; p < end; p += WARPS) {
                    const float dy = to_float(a.at<T>(slots::product::B)[(i64)p * s.f + f]);
                    const int n = p / (s.ho * s.wo), at = p - n * (s.ho * s.wo), oh = at / s.wo,
                              ow = at - oh * s.wo;
#pragma unroll
                    for (int e = 0; e < HOLD; ++e) {
                        const int k = k0 + e, tap = k / s.cg, c = k - tap * s.cg, i = tap / s.kw,
                                  j = tap - i * s.kw;
                        const int h = oh * s.sh - s.ph + i * s.dh,
                                  w = ow * s.sw - s.pw + j * s.dw;
                        if (k < own(s) && (u32)h < (u32)s.h && (u32)w < (u32)s.w)
                            acc[e] = fmaf(dy,
                                to_float(a.at<T>(
                                    slots::product::A)[(((i64)n * s.h + h) * s.w + w) * s.c + channel + c]),
                                acc[e]);
                    }
                }
            }
            float* scratch = (float*)smem;
#pragma unroll
            for (int e = 0; e < HOLD; ++e) scratch[(warp * HOLD + e) * 32 + lane] = acc[e];
            __syncthreads();
            for (int at = threadIdx.x; at < HOLD * 32; at += THREADS) {
                const int e = at % HOLD, l = at / HOLD, filter = block % across * 32 + l;
                float sum[1] = {0.0f};
                const float bias[1] = {0.0f};
#pragma unroll
                for (int w = 0; w < WARPS; ++w) sum[0] += scratch[(w * HOLD + e) * 32 + l];
                if (filter >= s.f || k0 + e >= own(s)) continue;
                const i64 index = (i64)filter * own(s) + k0 + e;
                if constexpr (SPLIT) a.at<float>(slots::product::WORK)[split * all(s) + index] = sum[0];
                else conv_finish<E, float, ACC, 1>(a, index, bias, sum);
            }
        }
    }
};
