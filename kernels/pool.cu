// Pooling over windows of images [N, H, W, C], and its gradients. Forward and backward gather: every output is written
// by one thread, so nothing is added atomically and results do not depend on any order of blocks.

// The geometry that the kernels of a window share. A thread handles one pixel's V neighbouring channels, up to 16 bytes
// as C allows, and neighbouring threads handle neighbouring channels, then pixels, so that windows that overlap find
// each other in the first-level cache.
template <class T, int N_, int H_, int W_, int C_, int KH_, int KW_, int SH_, int SW_, int PH_, int PW_, int HO_,
    int WO_>
struct Windows {
    static constexpr int N = N_, H = H_, W = W_, C = C_, KH = KH_, KW = KW_, SH = SH_, SW = SW_, PH = PH_, PW = PW_,
                         HO = HO_, WO = WO_;
    static constexpr int V = vec_width<T>(C), CV = C / V, SIZE = KH * KW;
    static constexpr i64 IN = (i64)N * H * W * CV, OUT = (i64)N * HO * WO * CV;
    static_assert(IN <= 0xffffffffll && OUT <= 0xffffffffll, "vectors are counted in 32 bits");
    // Whether a window may reach beyond the image.
    static constexpr bool PADDED = PH > 0 || PW > 0 || (HO - 1) * SH + KH > H || (WO - 1) * SW + KW > W;
    // Whether windows neither overlap nor reach beyond the image, so that a window knows the whole gradient of its
    // pixels.
    static constexpr bool DISJOINT = KH <= SH && KW <= SW && SH * SW <= 16 && !PADDED;
    // Windows that cover one pixel, at most.
    static constexpr int OVER_H = ceil_div(KH, SH), OVER_W = ceil_div(KW, SW), OVER = OVER_H * OVER_W;
    // The grid of strides that covers the image, with the windows at its upper left.
    static constexpr int CELLS_H = max_i(HO, ceil_div(H, SH)), CELLS_W = max_i(WO, ceil_div(W, SW));
    static constexpr i64 CELLS = (i64)N * CELLS_H * CELLS_W * CV;
    static constexpr int THREADS = 256;
    static constexpr int blocks_of(i64 groups) { return ceil_div(groups, THREADS); }
};

// How many of `n` positions are loaded together before the first is used.
__host__ __device__ constexpr int batch_of(int n) { return n <= 9 ? n : 4; }

template <class S> struct Place { int sample, row, col, group; };
// Takes the number of a vector apart, over images of `H` by `W` pixels.
template <class S, int H, int W> DEV Place<S> place(u32 at) {
    Place<S> p;
    p.group = at % S::CV;
    at /= S::CV;
    p.col = at % W;
    at /= W;
    p.row = at % H;
    p.sample = at / H;
    return p;
}
// The first element of a vector, in images of `H` by `W` pixels.
template <class S, int H, int W> DEV i64 element(const Place<S>& p, int row, int col) {
    return ((((i64)p.sample * H + row) * W + col) * S::CV + p.group) * S::V;
}

// Runs `use(k, value)` over the positions `k` of an output pixel's window that are in the image, in rising order.
template <class S, class T, class Use> DEV void each_in_window(const T* x, const Place<S>& p, const Use& use) {
    constexpr int BATCH = batch_of(S::SIZE), UNROLL = S::SIZE <= 16 ? ceil_div(S::SIZE, BATCH) : 1;
    const int row0 = p.row * S::SH - S::PH, col0 = p.col * S::SW - S::PW;
#pragma unroll UNROLL
    for (int k0 = 0; k0 < S::SIZE; k0 += BATCH) {
        Vec<T, S::V> v[BATCH];
        bool valid[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int k = k0 + i, row = row0 + k / S::KW, col = col0 + k % S::KW;
            valid[i] = (S::SIZE % BATCH == 0 || k < S::SIZE) && (!S::PADDED || ((u32)row < S::H && (u32)col < S::W));
            if (valid[i]) v[i] = load<T, S::V>(x + element<S, S::H, S::W>(p, row, col));
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
            if (valid[i]) use(k0 + i, v[i]);
    }
}

// Runs `take(i, k, at)` and then `use(i, k)` for the windows that cover an input pixel, in rising order of windows:
// `at` is the first element of the window's output and `k` the pixel's position in the window. Takes come in batches of
// `i` in 0..OVER, before their uses.
template <class S, class Take, class Use>
DEV void each_over_pixel(const Place<S>& p, const Take& take, const Use& use) {
    constexpr int BATCH = batch_of(S::OVER), UNROLL = S::OVER <= 16 ? ceil_div(S::OVER, BATCH) : 1;
    const int row = p.row + S::PH, col = p.col + S::PW;
    const int first_row = row / S::SH - (S::OVER_H - 1), first_col = col / S::SW - (S::OVER_W - 1);
#pragma unroll UNROLL
    for (int j0 = 0; j0 < S::OVER; j0 += BATCH) {
        int k[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int j = j0 + i, oy = first_row + j / S::OVER_W, ox = first_col + j % S::OVER_W;
            const int ky = row - oy * S::SH, kx = col - ox * S::SW;
            const bool covers =
                (S::OVER % BATCH == 0 || j < S::OVER) && (u32)oy < S::HO && (u32)ox < S::WO && ky < S::KH && kx < S::KW;
            k[i] = covers ? ky * S::KW + kx : -1;
            if (covers) take(i, element<S, S::HO, S::WO>(p, oy, ox));
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
            if (k[i] >= 0) use(i, k[i]);
    }
}

// Writes the SH x SW pixels of a cell of the grid of strides: `value(k)` at position `k` of the window, zeros where
// there is none.
template <class S, class T, class Value> DEV void write_cell(T* dx, const Place<S>& p, const Value& value) {
    const bool has_window = p.row < S::HO && p.col < S::WO;
#pragma unroll
    for (int ky = 0; ky < S::SH; ++ky) {
#pragma unroll
        for (int kx = 0; kx < S::SW; ++kx) {
            const int row = p.row * S::SH + ky, col = p.col * S::SW + kx;
            if (row < S::H && col < S::W) {
                Vec<T, S::V> out{};
                if (has_window && ky < S::KH && kx < S::KW) out = value(ky * S::KW + kx);
                store(dx + element<S, S::H, S::W>(p, row, col), out);
            }
        }
    }
}

// The type of a maximum's position in its window.
template <bool WIDE> struct PositionOf { using Type = u8; };
template <> struct PositionOf<true> { using Type = u16; };

#define POOL_PARAMETERS \
    class T, int N, int H, int W, int C, int KH, int KW, int SH, int SW, int PH, int PW, int HO, int WO
#define POOL_SHAPE Windows<T, N, H, W, C, KH, KW, SH, SW, PH, PW, HO, WO>

// A launch of one phase without shared memory, in which a thread takes one of GROUPS_ vectors.
template <class S, i64 GROUPS_> struct PoolLaunch {
    static constexpr int PHASES = 1, THREADS = S::THREADS;
    static constexpr i64 WORK = 0, GROUPS = GROUPS_;
    static constexpr int blocks(int) { return S::blocks_of(GROUPS); }
    static constexpr int smem(int) { return 0; }
};

// The vectors of the gradient of a pooling's input: of its pixels, or of the cells of the grid of strides where windows
// do not overlap.
template <class S> constexpr i64 gradient_groups() { return S::DISJOINT ? S::CELLS : S::IN; }

// ---------------------------------------- maximum

// y [N, HO, WO, C] = maximum over each window of x [N, H, W, C], both of T, and index (u8, or u16 for windows of more
// than 256) the position in the window, row by row, where slot 2 is bound. The first of equals wins, the first NaN wins
// over every number, and a window that is all padding gives minus infinity and position 0. Overwrites; moves (IN + OUT)
// * sizeof(T) + OUT * sizeof(index) bytes.
template <POOL_PARAMETERS> struct MaxPool : PoolLaunch<POOL_SHAPE, POOL_SHAPE::OUT> {
    using Slots = slots::max_pool;
    using S = POOL_SHAPE;
    using Position = typename PositionOf<(S::SIZE > 256)>::Type;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= S::OUT) return;
        const Place<S> p = place<S, HO, WO>(at);
        // All channels of a pixel share the first position that is no padding, which is the answer where every
        // value is minus infinity.
        int first = 0;
        if constexpr (S::PADDED) {
            const int row0 = p.row * SH - PH, col0 = p.col * SW - PW, ky = row0 < 0 ? -row0 : 0,
                      kx = col0 < 0 ? -col0 : 0;
            if (ky < KH && kx < KW && row0 + ky < H && col0 + kx < W) first = ky * KW + kx;
        }
        float best[S::V];
        int where[S::V];
#pragma unroll
        for (int i = 0; i < S::V; ++i) {
            best[i] = __int_as_float((int)0xff800000);
            where[i] = first;
        }
        each_in_window<S>(a.at<T>(Slots::X), p, [&](int k, const Vec<T, S::V>& v) {
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
// looks at the windows that cover it; where windows do not overlap, each window writes its pixels instead and reads its
// dy once. Overwrites, zeros included; moves (IN + OUT) * sizeof(T) + OUT * sizeof(index) bytes.
template <POOL_PARAMETERS>
struct MaxPoolBwd : PoolLaunch<POOL_SHAPE, gradient_groups<POOL_SHAPE>()> {
    using Slots = slots::max_pool_bwd;
    using S = POOL_SHAPE;
    using Position = typename PositionOf<(S::SIZE > 256)>::Type;
    static constexpr i64 GROUPS = gradient_groups<S>();
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= GROUPS) return;
        const T* dy = a.at<T>(Slots::DY);
        const Position* index = a.at<Position>(Slots::INDEX);
        T* dx = a.at<T>(Slots::DX);
        if constexpr (S::DISJOINT) {
            const Place<S> p = place<S, S::CELLS_H, S::CELLS_W>(at);
            Vec<T, S::V> v{};
            Vec<Position, S::V> chosen{};
            if (p.row < HO && p.col < WO) {
                const i64 from = element<S, HO, WO>(p, p.row, p.col);
                v = load<T, S::V>(dy + from);
                chosen = load<Position, S::V>(index + from);
            }
            write_cell<S>(dx, p, [&](int k) {
                Vec<T, S::V> out;
#pragma unroll
                for (int i = 0; i < S::V; ++i) out.v[i] = chosen.v[i] == k ? v.v[i] : T{};
                return out;
            });
        } else {
            const Place<S> p = place<S, H, W>(at);
            constexpr int BATCH = batch_of(S::OVER);
            Vec<T, S::V> v[BATCH];
            Vec<Position, S::V> chosen[BATCH];
            float sum[S::V];
#pragma unroll
            for (int i = 0; i < S::V; ++i) sum[i] = 0.0f;
            each_over_pixel<S>(
                p,
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
template <POOL_PARAMETERS> struct AvgPool : PoolLaunch<POOL_SHAPE, POOL_SHAPE::OUT> {
    using Slots = slots::avg_pool;
    using S = POOL_SHAPE;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= S::OUT) return;
        float sum[S::V];
#pragma unroll
        for (int i = 0; i < S::V; ++i) sum[i] = 0.0f;
        each_in_window<S>(a.at<T>(Slots::X), place<S, HO, WO>(at), [&](int, const Vec<T, S::V>& v) {
#pragma unroll
            for (int i = 0; i < S::V; ++i) sum[i] += to_float(v.v[i]);
        });
        Vec<T, S::V> y;
#pragma unroll
        for (int i = 0; i < S::V; ++i) y.v[i] = narrow<T>(sum[i] * (1.0f / S::SIZE));
        store(a.at<T>(Slots::Y) + (i64)at * S::V, y);
    }
};

// dx [N, H, W, C] = sum over the windows that cover a pixel of dy [N, HO, WO, C] / (KH * KW). Overwrites, zeros
// included; moves (IN + OUT) * sizeof(T) bytes.
template <POOL_PARAMETERS>
struct AvgPoolBwd : PoolLaunch<POOL_SHAPE, gradient_groups<POOL_SHAPE>()> {
    using Slots = slots::avg_pool_bwd;
    using S = POOL_SHAPE;
    static constexpr i64 GROUPS = gradient_groups<S>();
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const u32 at = (u32)block * S::THREADS + threadIdx.x;
        if (at >= GROUPS) return;
        const T* dy = a.at<T>(Slots::DY);
        T* dx = a.at<T>(Slots::DX);
        float sum[S::V];
#pragma unroll
        for (int i = 0; i < S::V; ++i) sum[i] = 0.0f;
        Vec<T, S::V> out;
        if constexpr (S::DISJOINT) {
            const Place<S> p = place<S, S::CELLS_H, S::CELLS_W>(at);
            Vec<T, S::V> v{};
            if (p.row < HO && p.col < WO) v = load<T, S::V>(dy + element<S, HO, WO>(p, p.row, p.col));
#pragma unroll
            for (int i = 0; i < S::V; ++i) out.v[i] = narrow<T>(to_float(v.v[i]) * (1.0f / S::SIZE));
            write_cell<S>(dx, p, [&](int) { return out; });
        } else {
            const Place<S> p = place<S, H, W>(at);
            Vec<T, S::V> v[batch_of(S::OVER)];
            each_over_pixel<S>(
                p, [&](int slot, i64 from) { v[slot] = load<T, S::V>(dy + from); },
                [&](int slot, int) {
#pragma unroll
                    for (int i = 0; i < S::V; ++i) sum[i] += to_float(v[slot].v[i]);
                });
#pragma unroll
            for (int i = 0; i < S::V; ++i) out.v[i] = narrow<T>(sum[i] * (1.0f / S::SIZE));
            store(dx + (i64)at * S::V, out);
        }
    }
};

// ---------------------------------------- mean over whole images

// y [N, C] = mean over HW of x [N, HW, C], both of T. Deterministic: every sum has a fixed order. Overwrites; moves N *
// HW * C * sizeof(T) bytes, and 8 * N * CHUNKS * C more where CHUNKS > 1.
//
// A block takes a strip of channels of one sample: TX neighbouring threads read neighbouring vectors of a pixel and
// LANES pixels are read at once; the lanes are then added up through shared memory. With CHUNKS = 1 a block sees all
// pixels and writes y. Otherwise it sees one of CHUNKS stretches of them and leaves its sums in work [N, CHUNKS, C],
// which phase 1 adds up, eight channels a block.
template <class T, int N, int HW, int C, int CHUNKS> struct GlobalAvgPool {
    using Slots = slots::global_avg_pool;
    static constexpr int PHASES = CHUNKS == 1 ? 1 : 2, THREADS = 256;
    static constexpr i64 WORK = CHUNKS == 1 ? 0 : 4ll * N * CHUNKS * C;
    static constexpr int V = vec_width<T>(C), GROUPS = C / V;
    // Few pixels leave nothing to do for many lanes, so strips are wider then.
    static constexpr int TX = min_i(GROUPS, HW <= 64 ? 32 : 8), LANES = THREADS / TX, STRIPS = ceil_div(GROUPS, TX),
                         WIDTH = TX * V;
    static constexpr int CHUNK_PIXELS = ceil_div(HW, CHUNKS), STEPS = ceil_div(CHUNK_PIXELS, LANES),
                         UNROLL = STEPS < 8 ? STEPS : 8;
    // Threads that share the final sum of one channel.
    static constexpr int SHARE = max_i(1, min_i(THREADS / WIDTH, LANES));
    static constexpr int blocks(int phase) { return phase == 0 ? N * CHUNKS * STRIPS : ceil_div((i64)N * C, 8); }
    static constexpr int smem(int phase) { return phase == 0 ? 4 * (LANES + SHARE) * WIDTH : 4 * 8 * 8; }
    static_assert(WIDTH <= THREADS, "a thread for each channel of a strip");

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const int t = threadIdx.x;
        float* partial = (float*)smem;
        if constexpr (PHASE == 0) {
            const int strip = block % STRIPS, part = block / STRIPS, chunk = part % CHUNKS, sample = part / CHUNKS;
            const int lane = t / TX, group = strip * TX + t % TX, start = chunk * CHUNK_PIXELS,
                      end = min_i(start + CHUNK_PIXELS, HW);
            float sum[V];
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] = 0.0f;
            if (lane < LANES && group < GROUPS) {
                const T* x = a.at<T>(Slots::X) + (i64)sample * HW * C + group * V;
#pragma unroll UNROLL
                for (int step = 0; step < STEPS; ++step) {
                    const int pixel = start + step * LANES + lane;
                    if (pixel < end) {
                        const Vec<T, V> v = load<T, V>(x + (i64)pixel * C);
#pragma unroll
                        for (int i = 0; i < V; ++i) sum[i] += to_float(v.v[i]);
                    }
                }
            }
            const float* shared_sums = share_lanes(partial, sum, lane, LANES, TX, SHARE);
            const int c = strip * WIDTH + t;
            if (t < WIDTH && c < C) {
                const float s = total_of_shares(shared_sums, t, WIDTH, SHARE);
                if constexpr (CHUNKS == 1) a.at<T>(Slots::Y)[(i64)sample * C + c] = narrow<T>(s * (1.0f / HW));
                else a.at<float>(Slots::WORK)[(i64)part * C + c] = s;
            }
        } else {
            // Four chunks of eight channels in each warp.
            const i64 out = (i64)block * 8 + t % 8;
            float s = 0.0f;
            if (out < (i64)N * C) {
                const float* from = a.at<float>(Slots::WORK) + out / C * CHUNKS * C + out % C;
#pragma unroll 8
                for (int i = t / 8; i < CHUNKS; i += THREADS / 8) s += from[(i64)i * C];
            }
            add_chunks_of_warp(partial, s);
            if (t < 8 && out < (i64)N * C)
                a.at<T>(Slots::Y)[out] = narrow<T>(total_of_warps<THREADS / 32>(partial, t) * (1.0f / HW));
        }
    }
};

// dx [N, HW, C] = dy [N, C] / HW, both of T. Overwrites; moves N * (HW + 1) * C * sizeof(T) bytes. A thread writes up
// to two vectors, a block apart.
template <class T, int N, int HW, int C> struct GlobalAvgPoolBwd {
    using Slots = slots::global_avg_pool_bwd;
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr int V = vec_width<T>(C), CV = C / V;
    static constexpr i64 WORK = 0, GROUPS = (i64)N * HW * CV;
    static_assert(GROUPS <= 0xffffffffll, "vectors are counted in 32 bits");
    static constexpr int EACH = GROUPS >= 1 << 18 ? 2 : 1;
    static constexpr int blocks(int) { return ceil_div(GROUPS, THREADS * EACH); }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 first = (i64)block * (THREADS * EACH) + threadIdx.x;
        Vec<T, V> v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const i64 at = first + i * THREADS;
            if (at < GROUPS)
                v[i] = load<T, V>(a.at<T>(Slots::DY) + ((i64)((u32)at / (u32)(HW * CV)) * CV + (u32)at % (u32)CV) * V);
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const i64 at = first + i * THREADS;
            if (at >= GROUPS) continue;
#pragma unroll
            for (int j = 0; j < V; ++j) v[i].v[j] = narrow<T>(to_float(v[i].v[j]) * (1.0f / HW));
            store(a.at<T>(Slots::DX) + at * V, v[i]);
        }
    }
};

#undef POOL_PARAMETERS
#undef POOL_SHAPE
