// Attention on the matrix instructions of warpgroups, in 16-bit precisions, on Hopper (target sm_90a): heads of 64
// features, without rotary embedding and dropout. Products have 16-bit factors and float sums; everything else between
// products is computed in floats.
//
// A warpgroup owns 64 positions of one head, which it holds in registers, and two warpgroups of a block stream the same
// tiles of other positions through shared memory. A third warpgroup copies the tiles. Barriers in shared memory tell
// which tiles are there and which are free, so that one warpgroup multiplies while the other computes exponentials. A
// block handles several pairs of own tiles; its copies run ahead, across them.

#if HAS_WARPGROUPS
// d = a b, or d += a b if KEEPS, of 64 by 16 elements in registers and 16 by 64 in shared memory, of which a line of
// memory has one column (64 elements along the sum), or, if ACROSS, one row.
#define ATTEND_WGMMA_OF(TYPE)                                                                                          \
    template <bool KEEPS, bool ACROSS> DEV void attend_wgmma(float (&d)[32], const u32 (&a)[4], u64 b, TYPE) {         \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                      \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." #TYPE "." #TYPE " "                                 \
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"         \
                     "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"                      \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),             \
                       "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),         \
                       "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),      \
                       "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),      \
                       "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)KEEPS), "n"((int)ACROSS));         \
    }
ATTEND_WGMMA_OF(bf16)
ATTEND_WGMMA_OF(f16)
#undef ATTEND_WGMMA_OF
#else
template <bool KEEPS, bool ACROSS, class T> DEV void attend_wgmma(float (&)[32], const u32 (&)[4], u64, T) {}
#endif

// A barrier in shared memory, at the address `at`, that passes to the next phase after a fixed number of arrivals.
DEV void barrier_start(u32 at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
DEV void barrier_arrive(u32 at) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(at) : "memory");
}
// Arrives after the copies that this thread has started.
DEV void barrier_arrive_after_copies(u32 at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
// Waits for the end of a phase, of which only the lowest bit matters.
DEV void barrier_wait(u32 at, u32 phase) {
    u32 is_over;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(is_over)
                     : "r"(at), "r"(phase)
                     : "memory");
    } while (is_over == 0);
}

// The tiles of one layer's attention A, for BLOCKS blocks.
template <class A_, int BLOCKS_> struct AttendWgmma {
    using A = A_;
    using T = typename A::T;
    using Sizes = typename A::Sizes;
    static constexpr int BLOCKS = BLOCKS_, D = A::D, OWN = 64, STREAM = 64, GROUPS = 2, PAIR = GROUPS * OWN;
    static constexpr int COPIERS = 128, THREADS = 128 * GROUPS + 128, STAGES = 5;
    // Bytes of a line of features and of a tile, and steps of 16 features.
    static constexpr int LINE = 2 * D, TILE = STREAM * LINE, STEPS = D / 16;
    // Floats of a result of 64 by 64 in each thread.
    static constexpr int RESULT = 32;
    // Bytes of the positions of some heads that fit the second-level cache of such a GPU with room to spare.
    static constexpr int CACHED = 24 << 20;
    static_assert(sizeof(T) == 2 && D == 64 && !A::ROTARY && !A::DROPS && !A::READS_DIM, "lines of 128 bytes");
    static_assert(HAS_WARPGROUPS || sizeof(T) == 0, "the target must be sm_90a");

    DEV int lane() { return threadIdx.x % 32; }
    // In a result, a lane has columns 8 j + 2 t and 8 j + 2 t + 1 of rows g and g + 8 of its warp's 16 rows.
    DEV int g() { return threadIdx.x % 32 / 4; }
    DEV int t() { return threadIdx.x % 4; }
    // The number of the warpgroup, and the first of the warp's 16 rows among those of the block. The compiler knows
    // that these are the same for all threads of a warp.
    DEV int group() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }
    DEV int own_row() { return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) * 16; }
    // The factor that turns products into exponents of two: the scale divided by ln 2.
    DEV float to_exponents() { return A::scale() * 1.44269504f; }
    DEV char* place(char* tile, int line, int slot) { return tile + line * LINE + ((slot ^ (line & 7)) << 4); }

    // Registers of a thread, which are 168 at the start of the kernel.
    DEV void take_registers_of_copies() { asm volatile("setmaxnreg.dec.sync.aligned.u32 56;"); }
    DEV void take_registers_of_products() { asm volatile("setmaxnreg.inc.sync.aligned.u32 224;"); }

    // The copying warpgroup starts to copy ROWS rows from position `first` on, with a stride of `step` elements; zeros
    // for positions beyond the last.
    template <int ROWS> DEV void fetch(Sizes size, char* to, const T* from, int step, int first) {
        constexpr int SLOTS = LINE / 16, ALONG = COPIERS / SLOTS;
        const int thread = threadIdx.x - 128 * GROUPS, slot = thread % SLOTS, row = first + thread / SLOTS;
        static_assert(ALONG % 8 == 0 && ROWS % ALONG == 0, "a thread's lines have the same permutation");
        char* at = place(to, thread / SLOTS, slot);
        from += slot * 8;
        if (size.len % ROWS == 0) {
            from += (i64)row * step;
#pragma unroll
            for (int i = 0; i < ROWS; i += ALONG) copy_async<16>(at + i * LINE, from + (i64)i * step, true);
        } else {
#pragma unroll 2
            for (int i = 0; i < ROWS; i += ALONG) {
                const bool valid = row + i < size.len;
                copy_async<16>(at + i * LINE, from + (valid ? (i64)(row + i) * step : 0), valid);
            }
        }
    }
    // The warp's own 16 rows in the layout of a first factor.
    DEV void hold(u32 (&held)[STEPS][4], char* tile) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
            load_matrix_x4(held[step], place(tile, own_row() + lane() % 16, 2 * step + lane() / 16));
    }
    // Describes a tile in shared memory. The next bytes are described by a larger number: one for every 16 bytes.
    DEV u64 matrix(const char* tile) { return warpgroup_matrix(shared_address(tile), 16, 8 * LINE); }
    // Starts d = x y^T of own rows and a streamed tile.
    DEV void products(float (&d)[RESULT], const u32 (&x)[STEPS][4], u64 y) {
        attend_wgmma<false, false>(d, x[0], y, T{});
#pragma unroll
        for (int step = 1; step < STEPS; ++step) attend_wgmma<true, false>(d, x[step], y + 2 * step, T{});
    }
    // Starts d += w y for weights of a streamed tile.
    DEV void add_products(float (&d)[RESULT], const u32 (&w)[STREAM / 16][4], u64 y) {
#pragma unroll
        for (int step = 0; step < STREAM / 16; ++step) attend_wgmma<true, true>(d, w[step], y + step * LINE, T{});
    }
    // A result as a first factor.
    DEV void to_factor(u32 (&w)[STREAM / 16][4], const float (&d)[RESULT]) {
#pragma unroll
        for (int step = 0; step < STREAM / 16; ++step) {
#pragma unroll
            for (int i = 0; i < 4; ++i) w[step][i] = Pair<T>::join(d[8 * step + 2 * i], d[8 * step + 2 * i + 1]);
        }
    }
    DEV void clear(float (&d)[RESULT]) {
#pragma unroll
        for (int i = 0; i < RESULT; ++i) d[i] = 0.0f;
    }
    // Writes the warp's 16 rows from position `first` on, the upper and the lower eight multiplied by a factor each, to
    // rows with a stride of `step` elements, through shared memory that no other warp uses.
    DEV void put(Sizes size, T* to, int step, int first, const float (&d)[RESULT], float upper, float lower,
        char* stage) {
        char* rows = stage + own_row() * LINE;
        __syncwarp();
#pragma unroll
        for (int j = 0; j < RESULT / 4; ++j) {
            *(u32*)(place(rows, g(), j) + 4 * t()) = Pair<T>::join(d[4 * j] * upper, d[4 * j + 1] * upper);
            *(u32*)(place(rows, g() + 8, j) + 4 * t()) = Pair<T>::join(d[4 * j + 2] * lower, d[4 * j + 3] * lower);
        }
        __syncwarp();
        constexpr int SLOTS = LINE / 16, ALONG = 32 / SLOTS;
#pragma unroll
        for (int row = lane() / SLOTS; row < 16; row += ALONG)
            if (first + row < size.len)
                *(uint4*)(to + (i64)(first + row) * step + lane() % SLOTS * 8) =
                    *(const uint4*)place(rows, row, lane() % SLOTS);
    }

    // The stage of a streamed tile, and the lowest bit of how often stages were used before.
    struct Place {
        int stage = 0;
        u32 turn = 0;
        __device__ __forceinline__ void advance() {
            if (++stage == STAGES) stage = 0, turn ^= 1;
        }
    };
    // The barriers of the streamed tiles and of the block's own ones: which are there, and which are free.
    static constexpr int BARRIERS = 8 * (2 * STAGES + 1);
    struct Barriers {
        u32 at;
        __device__ __forceinline__ u32 full(int stage) const { return at + 8 * stage; }
        __device__ __forceinline__ u32 free(int stage) const { return at + 8 * (STAGES + stage); }
        __device__ __forceinline__ u32 own_free() const { return at + 16 * STAGES; }
        __device__ __forceinline__ void start() const {
            if (threadIdx.x == 0) {
                for (int i = 0; i < STAGES; ++i) {
                    barrier_start(full(i), COPIERS);
                    barrier_start(free(i), 128 * GROUPS);
                }
                barrier_start(own_free(), 128 * GROUPS);
            }
            __syncthreads();
        }
        __device__ __forceinline__ void wait(Place place) const { barrier_wait(full(place.stage), place.turn); }
        __device__ __forceinline__ void wait_for_next(Place place) const {
            place.advance();
            wait(place);
        }
        // The thread no longer reads what this barrier stands for.
        __device__ __forceinline__ void release(u32 which) const { barrier_arrive(which); }
    };
    // Shared memory, aligned to the pattern of lines: the own tiles, results on their way, the stages of the streamed
    // tiles, and the barriers.
    template <int OWN_BYTES, int STAGE> struct Memory {
        static constexpr int OUT_BYTES = PAIR * LINE, BEFORE_STAGES = OWN_BYTES + OUT_BYTES;
        static constexpr int BEFORE_BARRIERS = BEFORE_STAGES + STAGES * STAGE;
        static constexpr int BYTES = 1024 + BEFORE_BARRIERS + BARRIERS;
        char* own;
        __device__ __forceinline__ explicit Memory(char* smem)
            : own(smem + (1024 - shared_address(smem) % 1024) % 1024) {}
        __device__ __forceinline__ char* out() const { return own + OWN_BYTES; }
        __device__ __forceinline__ char* stage(Place place) const { return own + BEFORE_STAGES + place.stage * STAGE; }
        // Describes the first tile of a stage.
        __device__ __forceinline__ u64 matrix(Place place) const {
            return AttendWgmma::matrix(own + BEFORE_STAGES) + place.stage * (STAGE / 16);
        }
        __device__ __forceinline__ Barriers barriers() const { return {shared_address(own + BEFORE_BARRIERS)}; }
    };
    // The parts of the work that one of `blocks` blocks handles. Parts are in groups of `each`, so that what a group
    // reads stays in the second-level cache; in a group, those that take longest come first. Blocks take parts in turn,
    // in rising and in falling order, which divides the work almost evenly.
    struct Walk {
        int all, each, blocks, block, group = 0, round = 0;
        __device__ __forceinline__ Walk(int all, int each, int block)
            : all(all), each(each), blocks(min_i(BLOCKS, all)), block(block) {}
        // The next part; negative after the last one.
        __device__ __forceinline__ int next() {
            while (group * each < all) {
                const int count = min_i(each, all - group * each), first = group * each;
                const int own = round * blocks + ((round + group) % 2 == 0 ? block : blocks - 1 - block);
                const bool is_last = ++round * blocks >= count;
                if (is_last) ++group, round = 0;
                if (own < count) return first + own;
            }
            return -1;
        }
    };
    // Warpgroups take turns at starting products, once for each tile, so that one multiplies while the other computes
    // exponentials: this one waits for its turn, and passes it on. The first turn is that of the first warpgroup.
    struct Turns {
        int group;
        DEV void meet(int number) { asm volatile("bar.sync %0, 256;" ::"r"(number) : "memory"); }
        DEV void pass_to(int number) { asm volatile("bar.arrive %0, 256;" ::"r"(number) : "memory"); }
        __device__ __forceinline__ explicit Turns(int group) : group(group) {
            if (group == 1) pass_to(1);
        }
        __device__ __forceinline__ void wait() const { meet(1 + group); }
        __device__ __forceinline__ void pass() const { pass_to(2 - group); }
        __device__ __forceinline__ void end() const {
            if (group == 0) meet(1);
        }
    };

    // Runs a block of the kernel Op: the last warpgroup copies, and the others multiply, part by part.
    template <class Op> static __device__ __forceinline__ void run(const Args& a, Sizes size, int block, char* smem) {
        const typename Op::Memory memory(smem);
        const Barriers barriers = memory.barriers();
        barriers.start();
        if (threadIdx.x >= 128 * GROUPS) {
            take_registers_of_copies();
            Place place;
            u32 own = 0;
            auto walk = Op::walk(size, block);
            for (int number = walk.next(); number >= 0; number = walk.next(), own ^= 1)
                Op::copy(a, size, Op::part(size, number), memory, barriers, own, place);
            copy_commit();
            copy_wait<0>();
        } else {
            take_registers_of_products();
            const Turns turns(group());
            Place place;
            auto walk = Op::walk(size, block);
            for (int number = walk.next(); number >= 0; number = walk.next())
                Op::multiply(a, size, Op::part(size, number), memory, barriers, turns, place);
            turns.end();
        }
    }
};

// Like `Attention`. Blocks own pairs of tiles of queries and stream keys and values, 128 positions at a time.
template <class M> struct AttentionWgmma {
    using Slots = slots::attention;
    using A = typename M::A;
    using T = typename A::T;
    using Sizes = typename A::Sizes;
    static constexpr int PHASES = 1, THREADS = M::THREADS, MIN_BLOCKS = 1, R = M::RESULT, HALF = M::STREAM;
    static constexpr int STREAM = 2 * HALF;
    static constexpr i64 WORK = 0;
    // Bytes of streamed keys or values.
    static constexpr int TILE = STREAM * M::LINE;
    using Memory = typename M::template Memory<M::PAIR * M::LINE, 2 * TILE>;
    static constexpr int parts(Sizes size) { return size.batch * size.heads * size.tiles_of(M::PAIR); }
    static constexpr int blocks_of(Sizes size) { return min_i(M::BLOCKS, parts(size)); }
    static constexpr int blocks(int) { return blocks_of(Sizes()); }
    DEV int blocks_for(const Args& a, int) { return blocks_of(Sizes(a)); }
    static constexpr int smem(int) { return Memory::BYTES; }
    static_assert(STREAM == M::PAIR, "queries see whole streamed tiles before their own");

    // Own queries from `first` on, and the tiles that they stream. Parts are grouped by heads whose positions fit the
    // cache; within a group, those that stream the most tiles come first.
    struct Part {
        int sample, head, kv, first, turns;
    };
    static __device__ __forceinline__ int group_of(Sizes size) {
        return min_i(max_i(M::CACHED / (4 * M::LINE) / size.len, 1), size.batch * size.heads);
    }
    static __device__ __forceinline__ typename M::Walk walk(Sizes size, int block) {
        return typename M::Walk(parts(size), group_of(size) * size.tiles_of(M::PAIR), block);
    }
    static __device__ __forceinline__ Part part(Sizes size, int number) {
        const int tiles = size.tiles_of(M::PAIR), all = size.batch * size.heads, group = group_of(size);
        const int before = number / (group * tiles) * group, count = min_i(group, all - before);
        number -= before * tiles;
        const int rank = number / count, of = before + number % count, tile = A::CAUSAL ? tiles - 1 - rank : rank;
        const int head = of % size.heads;
        return {of / size.heads, head, head / size.group(), tile * M::PAIR, A::CAUSAL ? tile + 1 : tiles};
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        M::template run<AttentionWgmma>(a, Sizes(a), block, smem);
    }

    // What the copying warpgroup does for a part.
    static __device__ __forceinline__ void copy(const Args& a, Sizes size, const Part& p, const Memory& memory,
        const typename M::Barriers& barriers, u32 own, typename M::Place& place) {
        const int packed = size.packed();
        const T* queries = a.at<T>(Slots::QKV) + (i64)p.sample * size.len * packed + p.head * A::D;
        const T* keys = queries + (size.heads + p.kv - p.head) * A::D;
#pragma unroll 1
        for (int turn = 0; turn < p.turns; ++turn, place.advance()) {
            barrier_wait(barriers.free(place.stage), place.turn ^ 1);
            if (turn == 0) {
                barrier_wait(barriers.own_free(), own ^ 1);
                M::template fetch<M::PAIR>(size, memory.own, queries, packed, p.first);
            }
            char* stage = memory.stage(place);
            M::template fetch<STREAM>(size, stage, keys, packed, turn * STREAM);
            M::template fetch<STREAM>(size, stage + TILE, keys + size.kv * A::D, packed, turn * STREAM);
            barrier_arrive_after_copies(barriers.full(place.stage));
        }
    }

    // What a thread holds while it streams tiles: its own rows, the products of a tile in two halves, the sum of
    // weighted values, and of its two rows the largest product, the sum of weights and the factor of earlier sums.
    struct State {
        u32 held[M::STEPS][4];
        float s[2][R], out[R], most[2], sum[2], fade[2];
    };
    // Starts the products of a tile that is there.
    DEV void begin(State& z, u64 stage) {
#pragma unroll
        for (int half = 0; half < 2; ++half) M::products(z.s[half], z.held, stage + half * (HALF * M::LINE / 16));
        warpgroup_commit();
    }
    // Starts to add the weighted values of a tile.
    DEV void add(State& z, const u32 (&weights)[2][HALF / 16][4], u64 stage) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            M::add_products(z.out, weights[half], stage + (TILE + half * HALF * M::LINE) / 16);
        warpgroup_commit();
    }

    // Replaces products by weights, which are to be divided by their sum. If the largest product of a row grows,
    // earlier weights are to be multiplied by `fade`. `mine` is the lane's first row, `its` its first column.
    DEV void soften(Sizes size, State& z, bool is_whole, int mine, int its) {
        if (!is_whole) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                // Queries beyond the last position attend to existing keys, so that none of their values is infinite.
                const int most = A::CAUSAL ? min_i(mine + 8 * r, size.len - 1) : size.len - 1, seen = most - its;
#pragma unroll
                for (int i = 0; i < R; ++i) {
                    float& s = z.s[i / (R / 2)][i % (R / 2) / 2 * 4 + 2 * r + i % 2];
                    if (i / 2 * 8 + i % 2 > seen) s = __int_as_float(0xff800000);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float now = z.most[r];
#pragma unroll
            for (int i = 0; i < R; ++i) now = fmaxf(now, z.s[i / (R / 2)][i % (R / 2) / 2 * 4 + 2 * r + i % 2]);
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            z.fade[r] = exp2_approximate((z.most[r] - now) * M::to_exponents());
            const float off = now * M::to_exponents();
            float added = 0.0f;
#pragma unroll
            for (int i = 0; i < R; ++i) {
                float& s = z.s[i / (R / 2)][i % (R / 2) / 2 * 4 + 2 * r + i % 2];
                s = exp2_approximate(fmaf(s, M::to_exponents(), -off));
                added += s;
            }
            z.sum[r] = fmaf(z.sum[r], z.fade[r], added);
            z.most[r] = now;
        }
    }

    // What the other warpgroups do for a part.
    static __device__ __forceinline__ void multiply(const Args& a, Sizes size, const Part& p, const Memory& memory,
        const typename M::Barriers& barriers, const typename M::Turns& turns, typename M::Place& place) {
        const int own = p.first + turns.group * M::OWN, top = p.first + M::own_row(), query = top + M::g();
        State z;
        barriers.wait(place);
        M::hold(z.held, memory.own);
        barriers.release(barriers.own_free());
        M::clear(z.out);
#pragma unroll
        for (int r = 0; r < 2; ++r) z.most[r] = __int_as_float(0xff800000), z.sum[r] = 0.0f;
        u32 weights[2][HALF / 16][4];
        const auto to_factors = [&]() {
            M::to_factor(weights[0], z.s[0]);
            M::to_factor(weights[1], z.s[1]);
        };
        const auto soften_tile = [&](int turn) {
            const int its = turn * STREAM;
            const bool is_whole = (size.len % STREAM == 0 || its + STREAM <= size.len) &&
                                  (!A::CAUSAL || its + STREAM - 1 <= own);
            soften(size, z, is_whole, query, its + 2 * M::t());
        };
        warpgroup_sees_memory();
        turns.wait();
        warpgroup_fence();
        begin(z, memory.matrix(place));
        turns.pass();
        warpgroup_wait<0>(z.s[0]);
        warpgroup_wait<0>(z.s[1]);
        soften_tile(0);
#pragma unroll 1
        for (int turn = 1; turn < p.turns; ++turn) {
            const typename M::Place before = place;
            to_factors();
            place.advance();
            barriers.wait(place);
            warpgroup_sees_memory();
            turns.wait();
            warpgroup_fence();
            begin(z, memory.matrix(place));
            add(z, weights, memory.matrix(before));
            turns.pass();
            warpgroup_wait<1>(z.s[0]);
            warpgroup_wait<1>(z.s[1]);
            soften_tile(turn);
            // As in the gradient, what comes before this branch is computed beside products.
            if (turn + 1 < p.turns) barriers.wait_for_next(place);
            warpgroup_wait<0>(z.out);
            barriers.release(barriers.free(before.stage));
#pragma unroll
            for (int i = 0; i < R; ++i) z.out[i] *= z.fade[i / 2 % 2];
        }
        to_factors();
        warpgroup_fence();
        add(z, weights, memory.matrix(place));
        warpgroup_wait<0>(z.out);
        barriers.release(barriers.free(place.stage));
        place.advance();
        const int of = p.sample * size.heads + p.head;
        float by[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            z.sum[r] += __shfl_xor_sync(0xffffffffu, z.sum[r], 1);
            z.sum[r] += __shfl_xor_sync(0xffffffffu, z.sum[r], 2);
            by[r] = 1.0f / z.sum[r];
            const int at = query + 8 * r;
            if (a.has(Slots::LSE) && M::t() == 0 && at < size.len)
                a.at<float>(Slots::LSE)[(i64)of * size.len + at] = fmaf(z.most[r], A::scale(), logf(z.sum[r]));
        }
        T* y = a.at<T>(Slots::Y) + (i64)p.sample * size.len * size.width() + p.head * A::D;
        M::put(size, y, size.width(), top, z.out, by[0], by[1], memory.out());
    }
};

// Like `AttentionBwd`. In the second phase, blocks own pairs of tiles of keys and values and stream the queries that
// attend to them with their dy, or own queries with their dy and stream keys and values. x1 and x2 are the own
// positions, y1 and y2 the streamed ones: the scores are x1 y1^T, and the gradients of the weights are x2 y2^T.
template <class M> struct AttentionWgmmaBwd {
    using Slots = slots::attention_bwd;
    using A = typename M::A;
    using T = typename A::T;
    using Sizes = typename A::Sizes;
    static constexpr int PHASES = 2, THREADS = M::THREADS, MIN_BLOCKS = 1, R = M::RESULT, STEPS = M::STEPS;
    // Lanes that sum a row of dy y.
    static constexpr int LANES = A::D / 8;
    static constexpr i64 WORK = 8ll * Sizes().rows();
    // Bytes of the two floats of each query of a tile or of a pair of tiles, which keep the tiles behind them aligned
    // to the pattern of lines.
    static constexpr int FACTS = 1024;
    using Memory = typename M::template Memory<2 * M::PAIR * M::LINE + FACTS, 2 * M::TILE + FACTS>;
    static_assert(8 * M::PAIR <= FACTS, "two floats for each query");
    static constexpr int blocks_of(Sizes size, int phase) {
        return phase == 0 ? ceil_div(size.rows(), THREADS / LANES) : min_i(M::BLOCKS, parts(size).all);
    }
    static constexpr int blocks(int phase) { return blocks_of(Sizes(), phase); }
    DEV int blocks_for(const Args& a, int phase) { return blocks_of(Sizes(a), phase); }
    static constexpr int smem(int phase) { return phase == 0 ? 0 : Memory::BYTES; }

    // The parts of the work: each is a pair of own tiles. Parts are grouped by heads whose positions fit the cache;
    // within a group, those that stream the most tiles of a head come first, but if several heads share keys, those of
    // keys and values, which stream as many times more, come before those of queries.
    struct Parts {
        int all, tiles, heads, each;
    };
    __host__ __device__ __forceinline__ static constexpr Parts parts(Sizes size) {
        const int tiles = size.tiles_of(M::PAIR), kv = size.batch * size.kv, own = 1 + size.group();
        const int heads = M::CACHED / M::LINE / (2 * own) / size.len;
        return {kv * tiles * own, tiles, heads < 1 ? 1 : heads < kv ? heads : kv, tiles * own};
    }
    static __device__ __forceinline__ typename M::Walk walk(Sizes size, int block) {
        const Parts p = parts(size);
        return typename M::Walk(p.all, p.heads * p.each, block);
    }
    // The own positions from `first` on, of keys and values of head `kv` or of queries of head `head`, and the
    // positions that they stream, in so many turns. Keys and values stream queries of several heads; `head` is the
    // first.
    struct Part {
        bool keys;
        int sample, kv, head, first, begin, end, turns;
    };
    static __device__ __forceinline__ Part part(Sizes size, int number) {
        const Parts p = parts(size);
        const int chunk = number / (p.heads * p.each), before = chunk * p.heads;
        const int heads = min_i(p.heads, size.batch * size.kv - before), own = 1 + size.group();
        number -= before * p.each;
        // A head of keys and values is number 0 of those that belong together; the others are its queries.
        int rank, within;
        if (own == 2) {
            rank = number / (heads * own), within = number % (heads * own);
        } else if (number < heads * p.tiles) {
            rank = number / heads, within = number % heads;
        } else {
            number -= heads * p.tiles;
            rank = number / (heads * (own - 1)), within = heads + number % (heads * (own - 1));
        }
        const int of = before + within % heads, kind = within / heads;
        Part out;
        out.keys = kind == 0;
        out.sample = of / size.kv, out.kv = of % size.kv;
        out.head = out.kv * size.group() + (out.keys ? 0 : kind - 1);
        const int tile = out.keys || !A::CAUSAL ? rank : p.tiles - 1 - rank, all = size.tiles_of(M::STREAM);
        out.first = tile * M::PAIR;
        out.begin = out.keys && A::CAUSAL ? out.first : 0;
        out.end = M::STREAM * (!out.keys && A::CAUSAL ? min_i((out.first + M::PAIR) / M::STREAM, all) : all);
        out.turns = (out.end - out.begin) / M::STREAM * (out.keys ? size.group() : 1);
        return out;
    }

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const Sizes size(a);
        if constexpr (PHASE == 0) add_rows(a, size, block);
        else M::template run<AttentionWgmmaBwd>(a, size, block, smem);
    }

    // For every row of scores: the exponent to base two that a score loses, and, in a second array, the sum of dy y
    // times the scale.
    DEV float* row_facts(const Args& a) { return a.at<float>(Slots::WORK); }
    DEV void add_rows(const Args& a, Sizes size, int block) {
        const int row = block * (THREADS / LANES) + threadIdx.x / LANES, col = threadIdx.x % LANES * 8;
        float sum = 0.0f;
        if (row < size.rows()) {
            const int of = row / size.len, position = row % size.len;
            const i64 at = ((i64)(of / size.heads) * size.len + position) * size.width() + of % size.heads * A::D + col;
            const Vec<T, 8> dy = load<T, 8>(a.at<T>(Slots::DY) + at), y = load<T, 8>(a.at<T>(Slots::Y) + at);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum = fmaf(to_float(dy.v[i]), to_float(y.v[i]), sum);
        }
        sum = warp_reduce<Sum, LANES>(sum);
        if (row < size.rows() && col == 0) {
            row_facts(a)[row] = a.at<float>(Slots::LSE)[row] * 1.44269504f;
            row_facts(a)[size.rows() + row] = sum * A::scale();
        }
    }

    DEV const T* qkv_of(const Args& a, Sizes size, int sample) {
        return a.at<T>(Slots::QKV) + (i64)sample * size.len * size.packed();
    }

    // Starts to copy what ROWS rows of scores lose, and then their sums; zeros for queries beyond the last.
    template <int ROWS>
    DEV void copy_facts(const Args& a, Sizes size, char* to, int sample, int head, int first) {
        const int thread = threadIdx.x - 128 * M::GROUPS;
#pragma unroll
        for (int i = thread; i < 2 * ROWS; i += M::COPIERS) {
            const int query = first + i % ROWS;
            const bool valid = query < size.len;
            const i64 row = (i64)(sample * size.heads + head) * size.len + (valid ? query : 0);
            copy_async<4>(to + 4 * i, row_facts(a) + (i < ROWS ? 0 : size.rows()) + row, valid);
        }
    }

    // What the copying warpgroup does for a part.
    static __device__ __forceinline__ void copy(const Args& a, Sizes size, const Part& p, const Memory& memory,
        const typename M::Barriers& barriers, u32 own, typename M::Place& place) {
        const int packed = size.packed(), width = size.width();
        const T* qkv = qkv_of(a, size, p.sample);
        const T* dy = a.at<T>(Slots::DY) + (i64)p.sample * size.len * width;
        const T *keys = qkv + (size.heads + p.kv) * A::D, *values = keys + size.kv * A::D;
        int head = p.head, from = p.begin;
#pragma unroll 1
        for (int turn = 0; turn < p.turns; ++turn) {
            const T *x1 = p.keys ? keys : qkv + p.head * A::D, *x2 = p.keys ? values : dy + p.head * A::D;
            const T *y1 = p.keys ? qkv + head * A::D : keys, *y2 = p.keys ? dy + head * A::D : values;
            const int dx2 = p.keys ? packed : width, dy2 = p.keys ? width : packed;
            barrier_wait(barriers.free(place.stage), place.turn ^ 1);
            if (turn == 0) {
                char* x = memory.own;
                barrier_wait(barriers.own_free(), own ^ 1);
                M::template fetch<M::PAIR>(size, x, x1, packed, p.first);
                M::template fetch<M::PAIR>(size, x + M::PAIR * M::LINE, x2, dx2, p.first);
                if (!p.keys) copy_facts<M::PAIR>(a, size, x + 2 * M::PAIR * M::LINE, p.sample, head, p.first);
            }
            char* stage = memory.stage(place);
            M::template fetch<M::STREAM>(size, stage, y1, packed, from);
            M::template fetch<M::STREAM>(size, stage + M::TILE, y2, dy2, from);
            if (p.keys) copy_facts<M::STREAM>(a, size, stage + 2 * M::TILE, p.sample, head, from);
            barrier_arrive_after_copies(barriers.full(place.stage));
            place.advance();
            from += M::STREAM;
            if (from == p.end) from = p.begin, ++head;
        }
    }

    // What the other warpgroups do for a part.
    static __device__ __forceinline__ void multiply(const Args& a, Sizes size, const Part& p, const Memory& memory,
        const typename M::Barriers& barriers, const typename M::Turns& turns, typename M::Place& place) {
        if (p.keys) differentiate<true>(a, size, p, memory, barriers, turns, place);
        else differentiate<false>(a, size, p, memory, barriers, turns, place);
    }

    // What a thread holds while it streams tiles: its own rows, the exponents and sums of its own queries, the products
    // for the scores and for the gradients of the weights, and the gradients of x1 and, for keys and values, of x2.
    struct State {
        u32 held1[STEPS][4], held2[STEPS][4];
        float less[2], sums[2];
        float s[R], d[R], dx1[R], dx2[R];
    };

    // Starts the products of a tile that is there, in a group each.
    DEV void begin(State& z, u64 stage) {
        M::products(z.s, z.held1, stage);
        warpgroup_commit();
        M::products(z.d, z.held2, stage + M::TILE / 16);
        warpgroup_commit();
    }

    // Replaces products by weights. Those that a query does not see are zero: `mine` is the lane's first row, `its` its
    // first column.
    template <bool KEYS>
    DEV void weigh(Sizes size, State& z, const float* queries, bool is_whole, int mine, int its) {
        if (!is_whole) {
#pragma unroll
            for (int i = 0; i < R; ++i) {
                const int row = mine + i / 2 % 2 * 8 - its, col = i / 4 * 8 + i % 2;
                const bool is_there = size.len % M::STREAM == 0 || col < size.len - its;
                if (!is_there || (A::CAUSAL && (KEYS ? row > col : col > row))) z.s[i] = __int_as_float(0xff800000);
            }
        }
#pragma unroll
        for (int j = 0; j < R / 4; ++j) {
            const Vec<float, 2> less = KEYS ? load<float, 2>(queries + 8 * j) : Vec<float, 2>{{z.less[0], z.less[1]}};
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                float& score = z.s[4 * j + v];
                score = exp2_approximate(fmaf(score, M::to_exponents(), -less.v[KEYS ? v % 2 : v / 2]));
            }
        }
    }
    // Replaces the gradients of weights by those of the unscaled scores.
    template <bool KEYS> DEV void to_scores(State& z, const float* queries) {
#pragma unroll
        for (int j = 0; j < R / 4; ++j) {
            const Vec<float, 2> sums =
                KEYS ? load<float, 2>(queries + M::STREAM + 8 * j) : Vec<float, 2>{{z.sums[0], z.sums[1]}};
#pragma unroll
            for (int v = 0; v < 4; ++v)
                z.d[4 * j + v] = z.s[4 * j + v] * fmaf(z.d[4 * j + v], A::scale(), -sums.v[KEYS ? v % 2 : v / 2]);
        }
    }

    // Starts to add a tile to the gradients, in one group.
    template <bool KEYS>
    DEV void add(State& z, const u32 (&weights)[M::STREAM / 16][4], const u32 (&scores)[M::STREAM / 16][4], u64 stage) {
        if constexpr (KEYS) M::add_products(z.dx2, weights, stage + M::TILE / 16);
        M::add_products(z.dx1, scores, stage);
        warpgroup_commit();
    }
    // What the streamed queries of a tile that this lane handles lose and subtract.
    DEV const float* queries_of(const Memory& memory, typename M::Place place) {
        return (const float*)(memory.stage(place) + 2 * M::TILE) + 2 * M::t();
    }

    // Whether no query of a tile from position `from` on sees a key of the warpgroup's own tile, or, unless KEYS, the
    // other way round.
    template <bool KEYS> DEV bool sees_nothing(Sizes size, int own, int from) {
        return own >= size.len || (A::CAUSAL && (KEYS ? from + M::STREAM <= own : own + M::OWN <= from));
    }

    template <bool KEYS>
    static __device__ __forceinline__ void differentiate(const Args& a, Sizes size, const Part& p, const Memory& memory,
        const typename M::Barriers& barriers, const typename M::Turns& turns, typename M::Place& place) {
        const int own = p.first + turns.group * M::OWN, top = p.first + M::own_row(), packed = size.packed();
        State z;
        barriers.wait(place);
        M::hold(z.held1, memory.own);
        M::hold(z.held2, memory.own + M::PAIR * M::LINE);
        if constexpr (!KEYS) {
            const float* facts = (const float*)(memory.own + 2 * M::PAIR * M::LINE) + M::own_row() + M::g();
#pragma unroll
            for (int r = 0; r < 2; ++r) z.less[r] = facts[8 * r], z.sums[r] = facts[M::PAIR + 8 * r];
        }
        barriers.release(barriers.own_free());
        M::clear(z.dx1);
        M::clear(z.dx2);
        // The streamed position of the next tile, and the number of tiles that are left.
        int its = p.begin, left = p.turns;
        const auto next = [&]() {
            place.advance();
            --left;
            its += M::STREAM;
            if (its == p.end) its = p.begin;
        };
        // Passes the tiles that are not seen.
        const auto pass = [&]() {
            for (; left > 0 && sees_nothing<KEYS>(size, own, its); next()) {
                barriers.wait(place);
                barriers.release(barriers.free(place.stage));
                turns.wait();
                turns.pass();
            }
        };
        pass();
        if (left == 0) return;
        // Tiles at the end that are not seen: queries do not see later keys.
        const int hidden = KEYS || !A::CAUSAL ? 0 : max_i(p.end - own - M::OWN, 0) / M::STREAM;
        // The weights and the gradients of scores of a tile, as factors.
        u32 weights[M::STREAM / 16][4], scores[M::STREAM / 16][4];
        const auto weigh_tile = [&]() {
            const int query = KEYS ? its : own, key = KEYS ? own : its;
            const bool is_whole = (size.len % M::STREAM == 0 || its + M::STREAM <= size.len) &&
                                  (!A::CAUSAL || key + M::OWN - 1 <= query);
            weigh<KEYS>(size, z, queries_of(memory, place), is_whole, top + M::g(), its + 2 * M::t());
        };
        barriers.wait(place);
        warpgroup_sees_memory();
        turns.wait();
        warpgroup_fence();
        begin(z, memory.matrix(place));
        turns.pass();
        warpgroup_wait<1>(z.s);
        weigh_tile();
        warpgroup_wait<0>(z.d);
        to_scores<KEYS>(z, queries_of(memory, place));
#pragma unroll 1
        while (left > hidden + 1) {
            const typename M::Place before = place;
            M::to_factor(weights, z.s);
            M::to_factor(scores, z.d);
            next();
            // Keys do not see the first queries of any of their heads.
            if (KEYS && A::CAUSAL && size.group() > 1) pass();
            barriers.wait(place);
            warpgroup_sees_memory();
            turns.wait();
            warpgroup_fence();
            begin(z, memory.matrix(place));
            add<KEYS>(z, weights, scores, memory.matrix(before));
            turns.pass();
            warpgroup_wait<2>(z.s);
            weigh_tile();
            warpgroup_wait<1>(z.d);
            to_scores<KEYS>(z, queries_of(memory, place));
            // The compiler moves computations behind a wait for products, but not behind a branch: what comes before
            // this one is computed beside the products.
            if (left > 1) barriers.wait_for_next(place);
            warpgroup_wait<0>(z.dx1);
            warpgroup_wait<0>(z.dx2);
            barriers.release(barriers.free(before.stage));
        }
        M::to_factor(weights, z.s);
        M::to_factor(scores, z.d);
        warpgroup_fence();
        add<KEYS>(z, weights, scores, memory.matrix(place));
        warpgroup_wait<0>(z.dx1);
        warpgroup_wait<0>(z.dx2);
        barriers.release(barriers.free(place.stage));
        next();
        pass();
        T* dx = a.at<T>(Slots::DX) + (i64)p.sample * size.len * packed +
                (KEYS ? size.heads + p.kv : p.head) * A::D;
        char* out = memory.out();
        M::put(size, dx, packed, top, z.dx1, 1.0f, 1.0f, out);
        if constexpr (KEYS) M::put(size, dx + size.kv * A::D, packed, top, z.dx2, 1.0f, 1.0f, out);
    }
};
