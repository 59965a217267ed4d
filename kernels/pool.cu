// Pooling over windows of images [N, H, W, C], and its gradients. Forward and backward passes gather: one thread writes
// each output, so that there are no atomics and results do not depend on the order of blocks.

// The number of the `n` positions that are loaded together before the first is used, and how often a loop over batches
// is repeated in the code.
__host__ __device__ constexpr int batch_of(int n) { return n <= 9 ? n : 4; }
__host__ __device__ constexpr int turns_of(int n) { return n <= 16 ? ceil_div(n, batch_of(n)) : 1; }

// The size of a window, its stride and padding: constants, or the numbers 6 and 7, with 16 bits for each.
// `size` are the positions of a window, and `over` the windows that cover one pixel, at most.
template <int KH, int KW, int SH, int SW, int PH, int PW> struct PoolWindow {
    static constexpr int kh = KH, kw = KW, sh = SH, sw = SW, ph = PH, pw = PW, size = KH * KW;
    static constexpr int over_h = ceil_div(KH, SH), over_w = ceil_div(KW, SW), over = over_h * over_w;
    static constexpr int BATCH = batch_of(size), TURNS = turns_of(size), OVER_BATCH = batch_of(over),
                         OVER_TURNS = turns_of(over);
    __device__ __forceinline__ constexpr explicit PoolWindow(const Args&) {}
    DEV float share() { return 1.0f / size; }
};
template <> struct PoolWindow<(int)ANY, (int)ANY, (int)ANY, (int)ANY, (int)ANY, (int)ANY> {
    static constexpr int BATCH = 4, TURNS = 1, OVER_BATCH = 4, OVER_TURNS = 1;
    int kh, kw, sh, sw, ph, pw, size, over_h, over_w, over;
    __device__ __forceinline__ explicit PoolWindow(const Args& a) {
        const i64 parts = Number<ANY, 6>(a), padding = Number<ANY, 7>(a);
        kh = (int)(parts & 0xffff), kw = (int)(parts >> 16 & 0xffff), sh = (int)(parts >> 32 & 0xffff),
        sw = (int)(parts >> 48 & 0xffff), ph = (int)(padding & 0xffff), pw = (int)(padding >> 16 & 0xffff);
        size = kh * kw, over_h = ceil_div(kh, sh), over_w = ceil_div(kw, sw), over = over_h * over_w;
    }
    __device__ __forceinline__ float share() const { return 1.0f / (float)size; }
};

// The geometry that the kernels of a window share. A thread handles V neighbouring channels of one pixel, up to 16
// bytes as C allows. Neighbouring threads handle neighbouring channels, then pixels, so that overlapping windows share
// data in the first-level cache.
//
// N, H, W, C, HO and WO are the numbers 0 to 5. A general member is compiled for V, for PADDED, whether a window may
// reach beyond the image, for DISJOINT, whether windows neither overlap nor reach beyond the image, so that a pixel's
// gradient comes from one window only, and for the window if it is a usual one.
template <class T, i64 N, i64 H, i64 W, i64 C, int KH, int KW, int SH, int SW, int PH, int PW, i64 HO, i64 WO, int V_,
    bool PADDED_, bool DISJOINT_>
struct Windows : PoolWindow<KH, KW, SH, SW, PH, PW> {
    using Window = PoolWindow<KH, KW, SH, SW, PH, PW>;
    static constexpr int V = V_;
    static constexpr bool FIXED = is_fixed(N), PADDED = PADDED_, DISJOINT = DISJOINT_;
    static constexpr int THREADS = 256;
    static constexpr i64 vectors(i64 n, i64 h, i64 w, i64 c) { return n * h * w * (c / V); }
    static_assert(!FIXED || (vectors(N, H, W, C) <= 0xffffffffll && vectors(N, HO, WO, C) <= 0xffffffffll),
        "vectors are counted in 32 bits");
    // The grid of cells of the size of the stride that covers the image; each cell has the window at its upper left.
    static constexpr int cells(int out, int in, int stride) { return max_i(out, ceil_div(in, stride)); }
    static constexpr i64 outputs(i64 n, i64 c, i64 ho, i64 wo) { return vectors(n, ho, wo, c); }
    // The number of vectors of the input's gradient: of its pixels, or of the cells of the grid if windows do not
    // overlap.
    static constexpr i64 gradients(i64 n, i64 h, i64 w, i64 c, i64 ho, i64 wo, int sh, int sw) {
        return DISJOINT ? vectors(n, cells((int)ho, (int)h, sh), cells((int)wo, (int)w, sw), c) : vectors(n, h, w, c);
    }
    static constexpr int blocks_of(i64 groups) { return ceil_div(groups, THREADS); }

    int n, h, w, c, ho, wo;
    __device__ __forceinline__ explicit Windows(const Args& a)
        : Window(a), n((int)Number<N, 0>(a)), h((int)Number<H, 1>(a)), w((int)Number<W, 2>(a)),
          c((int)Number<C, 3>(a)), ho((int)Number<HO, 4>(a)), wo((int)Number<WO, 5>(a)) {}
};

struct Place { int sample, row, col, group; };
// Splits the number of a vector into coordinates, over images of `h` by `w` pixels.
template <class S> DEV Place place(const S& s, u32 at, int h, int w) {
    const u32 cv = (u32)(s.c / S::V);
    Place p;
    p.group = at % cv;
    at /= cv;
    p.col = at % (u32)w;
    at /= (u32)w;
    p.row = at % (u32)h;
    p.sample = at / (u32)h;
    return p;
}
// The first element of a vector, in images of `h` by `w` pixels.
template <class S> DEV i64 element(const S& s, const Place& p, int row, int col, int h, int w) {
    return ((((i64)p.sample * h + row) * w + col) * (s.c / S::V) + p.group) * S::V;
}

// Calls `use(k, value)` for the positions `k` of an output pixel's window that are in the image, in rising order.
template <class S, class T, class Use>
DEV void each_in_window(const S& s, const T* x, const Place& p, const Use& use) {
    constexpr int BATCH = S::BATCH, TURNS = S::TURNS;
    const int row0 = p.row * s.sh - s.ph, col0 = p.col * s.sw - s.pw;
    int ky = 0, kx = 0;
#pragma unroll TURNS
    for (int k0 = 0; k0 < s.size; k0 += BATCH) {
        Vec<T, S::V> v[BATCH];
        bool valid[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int row = row0 + ky, col = col0 + kx;
            valid[i] = (s.size % BATCH == 0 || k0 + i < s.size) &&
                (!S::PADDED || ((u32)row < (u32)s.h && (u32)col < (u32)s.w));
            if (valid[i]) v[i] = load<T, S::V>(x + element(s, p, row, col, s.h, s.w));
            if (++kx == s.kw) kx = 0, ++ky;
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
            if (valid[i]) use(k0 + i, v[i]);
    }
}

// Calls `take(i, k, at)` and then `use(i, k)` for the windows that cover an input pixel, in rising order of windows:
// `at` is the first element of the window's output and `k` the pixel's position in the window. `take` is called for a
// batch of `i` before `use` is called for them.
template <class S, class Take, class Use>
DEV void each_over_pixel(const S& s, const Place& p, const Take& take, const Use& use) {
    constexpr int BATCH = S::OVER_BATCH, TURNS = S::OVER_TURNS;
    const int row = p.row + s.ph, col = p.col + s.pw;
    const int first_row = row / s.sh - (s.over_h - 1), first_col = col / s.sw - (s.over_w - 1);
    int down = 0, across = 0;
#pragma unroll TURNS
    for (int j0 = 0; j0 < s.over; j0 += BATCH) {
        int k[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int oy = first_row + down, ox = first_col + across;
            const int ky = row - oy * s.sh, kx = col - ox * s.sw;
            const bool covers = (s.over % BATCH == 0 || j0 + i < s.over) && (u32)oy < (u32)s.ho &&
                (u32)ox < (u32)s.wo && ky < s.kh && kx < s.kw;
            k[i] = covers ? ky * s.kw + kx : -1;
            if (covers) take(i, element(s, p, oy, ox, s.ho, s.wo));
            if (++across == s.over_w) across = 0, ++down;
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
            if (k[i] >= 0) use(i, k[i]);
    }
}

// Writes the pixels of a cell of the grid: `value(k)` at position `k` of the window, zeros at pixels outside it.
template <class S, class T, class Value> DEV void write_cell(const S& s, T* dx, const Place& p, const Value& value) {
    const bool has_window = p.row < s.ho && p.col < s.wo;
#pragma unroll
    for (int ky = 0; ky < s.sh; ++ky) {
#pragma unroll
        for (int kx = 0; kx < s.sw; ++kx) {
            const int row = p.row * s.sh + ky, col = p.col * s.sw + kx;
            if (row < s.h && col < s.w) {
                Vec<T, S::V> out{};
                if (has_window && ky < s.kh && kx < s.kw) out = value(ky * s.kw + kx);
                store(dx + element(s, p, row, col, s.h, s.w), out);
            }
        }
    }
}

// The type of the position of a maximum in its window.
template <bool WIDE> struct PositionOf { using Type = u8; };
template <> struct PositionOf<true> { using Type = u16; };

#define POOL_PARAMETERS \
    class T, i64 N, i64 H, i64 W, i64 C, int KH, int KW, int SH, int SW, int PH, int PW, i64 HO, i64 WO, \
        int V = vec_width<T>(C), \
        bool PADDED = (PH > 0 || PW > 0 || (HO - 1) * SH + KH > H || (WO - 1) * SW + KW > W), \
        bool DISJOINT = (KH <= SH && KW <= SW && SH * SW <= 16 && !PADDED), bool WIDE = (KH * KW > 256)
#define POOL_SHAPE Windows<T, N, H, W, C, KH, KW, SH, SW, PH, PW, HO, WO, V, PADDED, DISJOINT>

// A thread handles a vector of the output, or of the gradient of the input.
template <class S, i64 N, i64 C, i64 HO, i64 WO> struct PoolForward : OnePhase<S::THREADS> {
    static constexpr int blocks(int) { return S::blocks_of(S::outputs(N, C, HO, WO)); }
    DEV i64 groups_for(const S& s) { return S::outputs(s.n, s.c, s.ho, s.wo); }
    DEV int blocks_for(const Args& a, int) { return S::blocks_of(groups_for(S(a))); }
};
template <class S, i64 N, i64 H, i64 W, i64 C, i64 HO, i64 WO, int SH, int SW>
struct PoolBackward : OnePhase<S::THREADS> {
    static constexpr int blocks(int) { return S::blocks_of(S::gradients(N, H, W, C, HO, WO, SH, SW)); }
    DEV i64 groups_for(const S& s) { return S::gradients(s.n, s.h, s.w, s.c, s.ho, s.wo, s.sh, s.sw); }
    DEV int blocks_for(const Args& a, int) { return S::blocks_of(groups_for(S(a))); }
};
#define POOL_FORWARD PoolForward<POOL_SHAPE, N, C, HO, WO>
#define POOL_BACKWARD PoolBackward<POOL_SHAPE, N, H, W, C, HO, WO, SH, SW>

// ---------------------------------------- maximum

// y [N, HO, WO, C] = maximum over each window of x [N, H, W, C], both of T. If slot 2 is bound, index receives the
// position of the maximum in its window, row by row (u8, or u16 for windows of more than 256 positions). Of equal
// values the first one is chosen, the first NaN is chosen before every number, and a window of padding only gives minus
// infinity and position 0. Overwrites; moves (IN + OUT) * sizeof(T) + OUT * sizeof(index) bytes, where IN and OUT are
// the elements of x and y.
template <POOL_PARAMETERS> struct MaxPool : POOL_FORWARD {
    using Slots = slots::max_pool;
    using S = POOL_SHAPE;
    using Position = typename PositionOf<WIDE>::Type;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= POOL_FORWARD::groups_for(s)) return;
        const Place p = place(s, at, s.ho, s.wo);
        // The first position that is no padding is the same for all channels; it is the result if every value is minus
        // infinity.
        int first = 0;
        if constexpr (S::PADDED) {
            const int row0 = p.row * s.sh - s.ph, col0 = p.col * s.sw - s.pw, ky = row0 < 0 ? -row0 : 0,
                      kx = col0 < 0 ? -col0 : 0;
            if (ky < s.kh && kx < s.kw && row0 + ky < s.h && col0 + kx < s.w) first = ky * s.kw + kx;
        }
        float best[S::V];
        int where[S::V];
#pragma unroll
        for (int i = 0; i < S::V; ++i) {
            best[i] = __int_as_float((int)0xff800000);
            where[i] = first;
        }
        each_in_window(s, a.at<T>(Slots::X), p, [&](int k, const Vec<T, S::V>& v) {
#pragma unroll
            for (int i = 0; i < S::V; ++i) {
                const float value = to_float(v.v[i]);
                const bool better = !(value <= best[i]) && best[i] == best[i];
                best[i] = better ? value : best[i];
                where[i] = better ? k : where[i];
            }
        });
        Vec<T, S::V> y;
        Vec<Position, S::V> index;
#pragma unroll
        for (int i = 0; i < S::V; ++i) {
            y.v[i] = narrow<T>(best[i]);
            index.v[i] = (Position)where[i];
        }
        store(a.at<T>(Slots::Y) + (i64)at * S::V, y);
        if (a.has(Slots::INDEX)) store(a.at<Position>(Slots::INDEX) + (i64)at * S::V, index);
    }
};

// dx [N, H, W, C] = sum of the dy [N, HO, WO, C] whose windows chose the element, by index [N, HO, WO, C]. Each pixel
// reads the windows that cover it; if windows do not overlap, each window writes its pixels instead and reads its dy
// once. Overwrites, zeros included; moves (IN + OUT) * sizeof(T) + OUT * sizeof(index) bytes.
template <POOL_PARAMETERS> struct MaxPoolBwd : POOL_BACKWARD {
    using Slots = slots::max_pool_bwd;
    using S = POOL_SHAPE;
    using Position = typename PositionOf<WIDE>::Type;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= POOL_BACKWARD::groups_for(s)) return;
        const T* dy = a.at<T>(Slots::DY);
        const Position* index = a.at<Position>(Slots::INDEX);
        T* dx = a.at<T>(Slots::DX);
        if constexpr (S::DISJOINT) {
            const Place p = place(s, at, S::cells(s.ho, s.h, s.sh), S::cells(s.wo, s.w, s.sw));
            Vec<T, S::V> v{};
            Vec<Position, S::V> chosen{};
            if (p.row < s.ho && p.col < s.wo) {
                const i64 from = element(s, p, p.row, p.col, s.ho, s.wo);
                v = load<T, S::V>(dy + from);
                chosen = load<Position, S::V>(index + from);
            }
            write_cell(s, dx, p, [&](int k) {
                Vec<T, S::V> out;
#pragma unroll
                for (int i = 0; i < S::V; ++i) out.v[i] = chosen.v[i] == k ? v.v[i] : T{};
                return out;
            });
        } else {
            const Place p = place(s, at, s.h, s.w);
            constexpr int BATCH = S::OVER_BATCH;
            Vec<T, S::V> v[BATCH];
            Vec<Position, S::V> chosen[BATCH];
            float sum[S::V];
#pragma unroll
            for (int i = 0; i < S::V; ++i) sum[i] = 0.0f;
            each_over_pixel(
                s, p,
                [&](int slot, i64 from) {
                    v[slot] = load<T, S::V>(dy + from);
                    chosen[slot] = load<Position, S::V>(index + from);
                },
                [&](int slot, int k) {
#pragma unroll
                    for (int i = 0; i < S::V; ++i) sum[i] += chosen[slot].v[i] == k ? to_float(v[slot].v[i]) : 0.0f;
                });
            Vec<T, S::V> out;
#pragma unroll
            for (int i = 0; i < S::V; ++i) out.v[i] = narrow<T>(sum[i]);
            store(dx + (i64)at * S::V, out);
        }
    }
};

// ---------------------------------------- mean

// y [N, HO, WO, C] = mean over each window of x [N, H, W, C], both of T; padding counts as zeros and in the divisor.
// Overwrites; moves (IN + OUT) * sizeof(T) bytes.
template <POOL_PARAMETERS> struct AvgPool : POOL_FORWARD {
    using Slots = slots::avg_pool;
    using S = POOL_SHAPE;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= POOL_FORWARD::groups_for(s)) return;
        float sum[S::V];
#pragma unroll
        for (int i = 0; i < S::V; ++i) sum[i] = 0.0f;
        each_in_window(s, a.at<T>(Slots::X), place(s, at, s.ho, s.wo), [&](int, const Vec<T, S::V>& v) {
#pragma unroll
            for (int i = 0; i < S::V; ++i) sum[i] += to_float(v.v[i]);
        });
        Vec<T, S::V> y;
#pragma unroll
        for (int i = 0; i < S::V; ++i) y.v[i] = narrow<T>(sum[i] * s.share());
        store(a.at<T>(Slots::Y) + (i64)at * S::V, y);
    }
};

// dx [N, H, W, C] = sum over the windows that cover a pixel of dy [N, HO, WO, C] / (KH * KW). Overwrites, zeros
// included; moves (IN + OUT) * sizeof(T) bytes.
template <POOL_PARAMETERS> struct AvgPoolBwd : POOL_BACKWARD {
    using Slots = slots::avg_pool_bwd;
    using S = POOL_SHAPE;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const S s(a);
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= POOL_BACKWARD::groups_for(s)) return;
        const T* dy = a.at<T>(Slots::DY);
        T* dx = a.at<T>(Slots::DX);
        float sum[S::V];
#pragma unroll
        for (int i = 0; i < S::V; ++i) sum[i] = 0.0f;
        Vec<T, S::V> out;
        if constexpr (S::DISJOINT) {
            const Place p = place(s, at, S::cells(s.ho, s.h, s.sh), S::cells(s.wo, s.w, s.sw));
            Vec<T, S::V> v{};
            if (p.row < s.ho && p.col < s.wo) v = load<T, S::V>(dy + element(s, p, p.row, p.col, s.ho, s.wo));
#pragma unroll
            for (int i = 0; i < S::V; ++i) out.v[i] = narrow<T>(to_float(v.v[i]) * s.share());
            write_cell(s, dx, p, [&](int) { return out; });
        } else {
            const Place p = place(s, at, s.h, s.w);
            Vec<T, S::V> v[S::OVER_BATCH];
            each_over_pixel(
                s, p, [&](int slot, i64 from) { v[slot] = load<T, S::V>(dy + from); },
                [&](int slot, int) {
#pragma unroll
                    for (int i = 0; i < S::V; ++i) sum[i] += to_float(v[slot].v[i]);
                });
#pragma unroll
            for (int i = 0; i < S::V; ++i) out.v[i] = narrow<T>(sum[i] * s.share());
            store(dx + (i64)at * S::V, out);
        }
    }
};

// ---------------------------------------- mean over whole images

// y [N, C] = mean over HW of x [N, HW, C], both of T. Deterministic: every sum has a fixed order. Overwrites; moves N *
// HW * C * sizeof(T) bytes, and 8 * N * CHUNKS * C more if CHUNKS > 1.
//
// A block handles a strip of channels of one sample: TX neighbouring threads read neighbouring vectors of a pixel and
// LANES pixels are read at once; the sums of the lanes are then added through shared memory. With CHUNKS = 1 a block
// reads all pixels and writes y. Otherwise it reads one of CHUNKS ranges of them and writes its sums to work [N,
// CHUNKS, C]; phase 1 adds them, eight channels for each block.
//
// N, HW, C and CHUNKS are the numbers 0 to 3. A general member is compiled for V, TX, and whether CHUNKS = 1.
template <class T, i64 N, i64 HW, i64 C, i64 CHUNKS, int V = vec_width<T>(C),
    int TX = min_i((int)(C / V), HW <= 64 ? 32 : 8)>
struct GlobalAvgPool {
    using Slots = slots::global_avg_pool;
    static constexpr int PHASES = CHUNKS == 1 ? 1 : 2, THREADS = 256;
    static constexpr i64 WORK = CHUNKS == 1 ? 0 : 4ll * N * CHUNKS * C;
    // With few pixels many lanes would be idle, so strips are wider then.
    static constexpr int LANES = THREADS / TX, WIDTH = TX * V;
    static constexpr int STEPS = is_fixed(HW) && is_fixed(CHUNKS) ? ceil_div(ceil_div(HW, CHUNKS), LANES) : 8,
                         UNROLL = STEPS < 8 ? STEPS : 8;
    // Threads that share the final sum of one channel.
    static constexpr int SHARE = max_i(1, min_i(THREADS / WIDTH, LANES));
    static constexpr int blocks_of(int phase, i64 n, i64 c, i64 chunks) {
        return phase == 0 ? (int)(n * chunks * ceil_div(c / V, TX)) : ceil_div(n * c, 8);
    }
    static constexpr int blocks(int phase) { return blocks_of(phase, N, C, CHUNKS); }
    DEV int blocks_for(const Args& a, int phase) {
        return blocks_of(phase, Number<N, 0>(a), Number<C, 2>(a), Number<CHUNKS, 3>(a));
    }
    static constexpr int smem(int phase) { return phase == 0 ? 4 * (LANES + SHARE) * WIDTH : 4 * 8 * 8; }
    static_assert(WIDTH <= THREADS, "a thread for each channel of a strip");

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const int t = threadIdx.x;
        const int n = (int)Number<N, 0>(a), hw = (int)Number<HW, 1>(a), c_all = (int)Number<C, 2>(a),
                  chunks = (int)Number<CHUNKS, 3>(a);
        float* partial = (float*)smem;
        if constexpr (PHASE == 0) {
            const int groups = c_all / V, strips = ceil_div(groups, TX), chunk_pixels = ceil_div(hw, chunks),
                      steps = ceil_div(chunk_pixels, LANES);
            const int strip = block % strips, part = block / strips, chunk = part % chunks, sample = part / chunks;
            const int lane = t / TX, group = strip * TX + t % TX, start = chunk * chunk_pixels,
                      end = min_i(start + chunk_pixels, hw);
            float sum[V];
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] = 0.0f;
            if (lane < LANES && group < groups) {
                const T* x = a.at<T>(Slots::X) + (i64)sample * hw * c_all + group * V;
#pragma unroll UNROLL
                for (int step = 0; step < steps; ++step) {
                    const int pixel = start + step * LANES + lane;
                    if (pixel < end) {
                        const Vec<T, V> v = load<T, V>(x + (i64)pixel * c_all);
#pragma unroll
                        for (int i = 0; i < V; ++i) sum[i] += to_float(v.v[i]);
                    }
                }
            }
            const float* shared_sums = share_lanes(partial, sum, lane, LANES, TX, SHARE);
            const int c = strip * WIDTH + t;
            if (t < WIDTH && c < c_all) {
                const float s = total_of_shares(shared_sums, t, WIDTH, SHARE);
                if constexpr (CHUNKS == 1)
                    a.at<T>(Slots::Y)[(i64)sample * c_all + c] = narrow<T>(s * (1.0f / (float)hw));
                else a.at<float>(Slots::WORK)[(i64)part * c_all + c] = s;
            }
        } else {
            // Four chunks of eight channels in each warp.
            const i64 out = (i64)block * 8 + t % 8;
            float s = 0.0f;
            if (out < (i64)n * c_all) {
                const float* from = a.at<float>(Slots::WORK) + out / c_all * chunks * c_all + out % c_all;
#pragma unroll 8
                for (int i = t / 8; i < chunks; i += THREADS / 8) s += from[(i64)i * c_all];
            }
            add_chunks_of_warp(partial, s);
            if (t < 8 && out < (i64)n * c_all)
                a.at<T>(Slots::Y)[out] = narrow<T>(total_of_warps<THREADS / 32>(partial, t) * (1.0f / (float)hw));
        }
    }
};

// dx [N, HW, C] = dy [N, C] / HW, both of T. Overwrites; moves N * (HW + 1) * C * sizeof(T) bytes. A thread writes up
// to two vectors, a block apart.
//
// N, HW and C are the numbers 0 to 2. A general member is compiled for V, and for EACH, the vectors of a thread.
template <class T, i64 N, i64 HW, i64 C, int V = vec_width<T>(C), int EACH = N * HW * (C / V) >= 1 << 18 ? 2 : 1>
struct GlobalAvgPoolBwd {
    using Slots = slots::global_avg_pool_bwd;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0;
    static constexpr int blocks_of(i64 n, i64 hw, i64 c) { return ceil_div(n * hw * (c / V), THREADS * EACH); }
    static_assert(!is_fixed(N) || N * HW * (C / V) <= 0xffffffffll, "vectors are counted in 32 bits");
    static constexpr int blocks(int) { return blocks_of(N, HW, C); }
    DEV int blocks_for(const Args& a, int) {
        return blocks_of(Number<N, 0>(a), Number<HW, 1>(a), Number<C, 2>(a));
    }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const int hw = (int)Number<HW, 1>(a), cv = (int)Number<C, 2>(a) / V;
        const i64 groups = Number<N, 0>(a) * (i64)hw * cv;
        const i64 first = (i64)block * (THREADS * EACH) + threadIdx.x;
        Vec<T, V> v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const i64 at = first + i * THREADS;
            if (at < groups)
                v[i] = load<T, V>(a.at<T>(Slots::DY) + ((i64)((u32)at / (u32)(hw * cv)) * cv + (u32)at % (u32)cv) * V);
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const i64 at = first + i * THREADS;
            if (at >= groups) continue;
#pragma unroll
            for (int j = 0; j < V; ++j) v[i].v[j] = narrow<T>(to_float(v[i].v[j]) * (1.0f / (float)hw));
            store(a.at<T>(Slots::DX) + at * V, v[i]);
        }
    }
};

#undef POOL_PARAMETERS
#undef POOL_SHAPE
#undef POOL_FORWARD
#undef POOL_BACKWARD
