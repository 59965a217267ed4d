// Parameter updates over the flat parameter vector, their metrics, and the scale of the loss in half precision.
//
// The vector consists of segments, one for each parameter: a segment starts at a multiple of 64 elements, and the
// padding after it is not written. The segments of a step are declared before the type of its operation, in rising
// order, as
//
//     static __device__ const u32 SEGMENT_ROWS[COUNT * 2] = {first element / 64, elements, ...};
//     struct Segments {
//         static constexpr int COUNT;
//         static constexpr u32 FIRST, END, LONGEST;
//         static constexpr long long LEN;
//         static constexpr bool DENSE, SCALED, EXEMPTS;
//         static __device__ const u32* rows();
//         static __device__ bool exempt(int segment);
//     };
//
// where, in units of 64 elements, FIRST and END bound the segments and LONGEST is the length of the longest. LEN is the
// length of the vector. DENSE says that no segment is empty and each starts at the first unit after the one before.
// SCALED says that gradients are multiplied by the third value of `hyper`, EXEMPTS that some segments have no weight
// decay: those for which `exempt` is true.

// Segments that a general member reads from memory; number 0 is the address: COUNT, FIRST, END and the two words of
// LEN, then the WORDS of the constants of the rule, the rows of the segments, and a bit for each segment without weight
// decay. DIRECT: no partial result is
// empty and one tile holds all of them. SHARE: the number of threads that add the partial results of a segment. ALONE:
// one block handles all units; the other clusters of general members have eight blocks, some of which may have no unit.
template <bool DIRECT, bool SCALED_, bool EXEMPTS_, int SHARE_, bool ALONE_> struct AnySegments {
    static constexpr i64 COUNT = ANY, FIRST = 0, END = 0, LEN = ANY;
    static constexpr u32 LONGEST = 0;
    static constexpr bool DENSE = DIRECT, SCALED = SCALED_, EXEMPTS = EXEMPTS_, ALONE = ALONE_;
    static constexpr int SHARE = SHARE_;
};

// The rows of segments, their number and their bounds: constants if the kernel is compiled for them.
template <class Segments, bool FIXED, int WORDS> struct SegmentTable {
    static constexpr int count = Segments::COUNT;
    static constexpr u32 first = Segments::FIRST, end = Segments::END;
    static constexpr i64 len = Segments::LEN;
    __device__ __forceinline__ explicit SegmentTable(const Args&) {}
    DEV const u32* constants() { return nullptr; }
    DEV const u32* rows() { return Segments::rows(); }
    DEV bool exempt(int segment) { return Segments::exempt(segment); }
};
template <class Segments, int WORDS> struct SegmentTable<Segments, false, WORDS> {
    const u32* words;
    int count;
    u32 first, end;
    i64 len;
    __device__ __forceinline__ explicit SegmentTable(const Args& a) : words((const u32*)(i64)Number<ANY, 0>(a)) {
        count = (int)words[0], first = words[1], end = words[2], len = (i64)((u64)words[4] << 32 | words[3]);
    }
    __device__ __forceinline__ const u32* constants() const { return words + 5; }
    __device__ __forceinline__ const u32* rows() const { return words + 5 + WORDS; }
    __device__ __forceinline__ bool exempt(int segment) const {
        return rows()[count * 2 + segment / 32] >> segment % 32 & 1;
    }
};

// ---------------------------------------- update

// How the metrics of all blocks are summed.
enum UpdateFinish {
    // By a second phase of one block.
    FINISH_PHASE = 0,
    // By the block that draws the last number from the ticket.
    FINISH_TICKET = 1,
    // In the shared memory of the first block of a cluster that all blocks form; or of the only block.
    FINISH_CLUSTER = 2,
};

// An update of all segments. Slots: those of the rule. `p`, `g` and the states are float; `shadow` is a copy of the new
// parameters in type T, written if bound. If `scaler` is bound, gradients are multiplied by scaler[2] first, and if
// scaler[3] is 1, only zero metrics are written.
//
// A unit is 64 elements, a group of 16 bytes for each of 16 threads; segments start at units, so that each unit is in
// one segment. A block of THREADS threads handles THREADS / 16 * EACH * ROUNDS consecutive units, whatever segments
// they belong to, with EACH groups of a thread in flight. Its loads do not depend on where segments start, so that the
// table of segments is searched at the same time; padding is read with the rest and never written. Each pair of a block
// b and a segment s in it writes two floats to work at b + s, which no other pair uses. They are summed as `FINISH`
// says, always in the same order. Moves 12 bytes a parameter, 8 more for each state, and the shadow.
template <class Rule, class T, class Segments, int THREADS_, int EACH, int ROUNDS, int FINISH> struct Update {
    static constexpr int PHASES = FINISH == FINISH_PHASE ? 2 : 1, THREADS = THREADS_, WARPS = THREADS / 32;
    static constexpr bool BEGINS = true;
    static constexpr bool FIXED = is_fixed(Segments::COUNT);
    static constexpr int STATES = Rule::STATES, V = 4, UNIT = 64, LANES = UNIT / V;
    static constexpr int STRIDE = THREADS / LANES, PER_BLOCK = STRIDE * EACH * ROUNDS;
    static constexpr bool CLUSTER = FINISH == FINISH_CLUSTER;
    using Table = SegmentTable<Segments, FIXED, Rule::WORDS>;

    static constexpr int blocks_of(i64 units) { return ceil_div(units, PER_BLOCK); }
    // Partial results: one for each pair of a block and a segment, or for each unit.
    static constexpr int parts_of(i64 units, int count) { return CLUSTER ? (int)units : blocks_of(units) + count - 1; }
    static constexpr int tile_of(int parts) { return CLUSTER ? parts : min_i(parts, 1024); }
    DEV int parts(const Table& table) { return parts_of(table.end - table.first, table.count); }

    static constexpr i64 UNITS = (i64)Segments::END - (i64)Segments::FIRST, LEN = Segments::LEN;
    static constexpr int COUNT = (int)Segments::COUNT, BLOCKS = blocks_of(UNITS), PARTS = parts_of(UNITS, COUNT);
    // The capacity of a general member in shared memory.
    static constexpr int MOST_SEGMENTS = FIXED ? COUNT : 1024;
    static constexpr int MOST_PARTS = FIXED ? tile_of(PARTS) : CLUSTER ? 512 : 1024;
    static constexpr int HEAD = 8 * 32 + 16;
    static constexpr int SMEM = HEAD + 8 * MOST_SEGMENTS + 8 * max_i(MOST_PARTS, CLUSTER ? 0 : PER_BLOCK);
    static constexpr int blocks(int phase) { return phase == 0 ? BLOCKS : 1; }
    DEV int blocks_for(const Args& a, int phase) {
        const Table table(a);
        if (REMOTE) return 8;
        return phase == 0 ? blocks_of(table.end - table.first) : 1;
    }
    static constexpr int smem(int phase) {
        return FINISH == FINISH_PHASE && phase == 0 ? HEAD + 8 * MOST_SEGMENTS + 8 * PER_BLOCK : SMEM;
    }
    static constexpr i64 WORK = CLUSTER ? 0 : 8ll * PARTS;
    // The number of threads that add the partial results of a segment.
    static constexpr int share() {
        constexpr int EACH_SEGMENT = THREADS / (FIXED ? COUNT : 1);
        if constexpr (FIXED) return EACH_SEGMENT >= 32 ? 32 : EACH_SEGMENT >= 16 ? 16 : EACH_SEGMENT >= 8 ? 8 : 4;
        else return Segments::SHARE;
    }
    static constexpr int SHARE = share();
    // The iterations that they need for the longest segment; a general member does not count them.
    static constexpr int STEPS = !FIXED
        ? 1 << 20
        : ceil_div(min_i(MOST_PARTS, CLUSTER ? (int)Segments::LONGEST : (int)(Segments::LONGEST / PER_BLOCK) + 2),
              SHARE);
    // Whether no partial result is empty, so that their sum needs no segments.
    static constexpr bool DIRECT = CLUSTER || (Segments::DENSE && (!FIXED || PARTS <= MOST_PARTS));
    // Rows of the table that a thread holds; a warp holds the table, or searches for a segment in memory.
    static constexpr bool HOLDS = FIXED && COUNT <= 128;
    static constexpr int HELD = HOLDS ? ceil_div(COUNT, 32) : 1;

    // A segment: its first unit and its elements.
    struct Row { u32 start; int len; };
    static __device__ __forceinline__ u32 units(const Row& row) { return (u32)(row.len + UNIT - 1) / UNIT; }
    static __device__ __forceinline__ Row row_at(const Table& table, int s) {
        const u32* rows = table.rows();
        return s < table.count ? Row{rows[s * 2], (int)rows[s * 2 + 1]} : Row{0xffffffffu, 0};
    }
    struct Finder {
        Row held[HELD];
        __device__ __forceinline__ void read(const Table& table) {
            if constexpr (HOLDS || FIXED) {
#pragma unroll
                for (int k = 0; k < HELD; ++k) held[k] = row_at(table, k * 32 + threadIdx.x % 32);
            }
        }
        // The segment of a unit, which is the same for the whole warp.
        __device__ __forceinline__ int find(const Table& table, u32 unit, Row& row) const {
            int before = 0;
            if constexpr (HOLDS) {
#pragma unroll
                for (int k = 0; k < HELD; ++k) before += __popc(__ballot_sync(0xffffffffu, held[k].start <= unit));
            } else {
#pragma unroll 4
                for (int k = 0; k < table.count; k += 32)
                    before +=
                        __popc(__ballot_sync(0xffffffffu, row_at(table, k + threadIdx.x % 32).start <= unit));
            }
            const int s = max_i(before - 1, 0);
            if constexpr (HOLDS) {
#pragma unroll
                for (int k = 0; k < HELD; ++k) {
                    const u32 start = __shfl_sync(0xffffffffu, held[k].start, s % 32);
                    const int len = __shfl_sync(0xffffffffu, held[k].len, s % 32);
                    if (k == s / 32) row = Row{start, len};
                }
            } else row = row_at(table, s);
            return s;
        }
    };

    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const bool metrics =
            a.has(Rule::UPDATE_MAX) || a.has(Rule::GRAD_NORM_SEG) || a.has(Rule::TOTAL_MAX) || a.has(Rule::GRAD_NORM);
        if constexpr (PHASE == 1) {
            begin(a);
            if (!metrics || overflowed(a)) return;
            const Table table(a);
            reduce(a, table, smem, row_at(table, threadIdx.x / SHARE));
        } else {
            const Table table(a);
            Row mine;
            if (update(a, table, block, metrics, smem, mine)) reduce(a, table, smem, mine);
        }
    }

    static __device__ __forceinline__ bool overflowed(const Args& a) {
        return a.has(Rule::SCALER) && a.at<float>(Rule::SCALER)[3] == 1.0f;
    }

    // Draws the next number from the ticket. Everything that the block wrote before its last barrier is visible to a
    // block that draws a later number.
    static __device__ __forceinline__ u32 draw(u32* ticket) {
        u32 drawn;
        asm volatile("atom.release.gpu.global.add.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(ticket) : "memory");
        return drawn;
    }

    // Metrics of units are sent to the first block of the cluster by asynchronous stores that signal a barrier in its
    // shared memory. Other blocks may use that memory after a cluster barrier; the first half of the cluster barrier
    // does not wait.
    static constexpr bool remote() {
        if constexpr (FIXED) return CLUSTER && BLOCKS > 1;
        else return CLUSTER && !Segments::ALONE;
    }
    static constexpr bool REMOTE = remote();
    static __device__ __forceinline__ void* arrivals(char* smem) { return smem + HEAD - 8; }
    static __device__ __forceinline__ void meet(const Table& table, int block, char* smem) {
#if __CUDA_ARCH__ >= 900
        if constexpr (REMOTE) {
            const bool first = block == 0 && threadIdx.x == 0;
            const u32 at = shared_address(arrivals(smem));
            if (first) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
                asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            }
            __syncwarp();
            if (first)
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                    "r"(8 * parts(table))
                    : "memory");
            __syncwarp();
            asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
        }
#endif
    }
    static __device__ __forceinline__ void met() {
#if __CUDA_ARCH__ >= 900
        if constexpr (REMOTE) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
    }
    static __device__ __forceinline__ void post(UpdateMetric* at, const UpdateMetric& m, char* smem) {
#if __CUDA_ARCH__ >= 900
        if constexpr (REMOTE) {
            u32 there, counter;
            asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(shared_address(at)));
            asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(counter) : "r"(shared_address(arrivals(smem))));
            asm volatile(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(there),
                "r"(m.max), "r"(__float_as_uint(m.square)), "r"(counter)
                : "memory");
            return;
        }
#endif
        *at = m;
    }
    // Waits for the metrics of all units, in the first block.
    static __device__ __forceinline__ void wait_for_units(char* smem) {
#if __CUDA_ARCH__ >= 900
        if constexpr (REMOTE) {
            u32 done = 0;
            while (done == 0)
                asm volatile(
                    "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
                    "selp.u32 %0, 1, 0, p;\n}"
                    : "=r"(done)
                    : "r"(shared_address(arrivals(smem)))
                    : "memory");
            return;
        }
#endif
        __syncthreads();
    }

    // The elements of one unit that a thread has.
    struct Group { Vec<float, V> p, g, s[2]; };

    // Updates the block's units; returns true if this block must sum the metrics.
    static __device__ __forceinline__ bool update(
        const Args& a, const Table& table, int block, bool metrics, char* smem, Row& mine) {
        meet(table, block, smem);
        const int count = table.count, blocks = blocks_of(table.end - table.first);
        const u32 start = table.first, end = table.end;
        UpdateMetric *scratch = (UpdateMetric*)smem, *shared = (UpdateMetric*)(smem + HEAD + 8 * count);
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / LANES;
        float* param = a.at<float>(Rule::PARAM);
        const float* param_prev = a.has(Rule::PARAM_PREV) ? a.at<float>(Rule::PARAM_PREV) : param;
        const float* grad = a.at<float>(Rule::GRAD);
        T* shadow = a.at<T>(Rule::SHADOW);
        const u32 first = start + block * PER_BLOCK, past = first + PER_BLOCK < end ? first + PER_BLOCK : end;
        // The first unit of a warp in a round.
        const auto unit_of = [&](int round, int e) { return first + (round * EACH + e) * STRIDE + warp * 2; };
        Group own[EACH];
        // With the flag of the launch, parameters and states are loaded before the gradient is ready, because the
        // preceding launch does not write them.
        const auto read_old = [&](int round) {
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const u32 unit = unit_of(round, e) + half;
                if (unit >= end) continue;
                const i64 at = (i64)unit * UNIT + lane % LANES * V;
                own[e].p = read_group(table, param_prev, at);
#pragma unroll
                for (int k = 0; k < STATES; ++k)
                    own[e].s[k] = read_group(table,
                        a.has(Rule::STATE_PREV + k) ? a.at<float>(Rule::STATE_PREV + k) : a.at<float>(Rule::STATE + k),
                        at);
            }
        };
        const auto read_new = [&](int round) {
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const u32 unit = unit_of(round, e) + half;
                if (unit < end) own[e].g = read_group(table, grad, (i64)unit * UNIT + lane % LANES * V);
            }
        };
        const bool early = launch_flags(a) & EARLY_ENDS;
        if (early) read_old(0);
        begin(a);
        if (!early) read_old(0);
        read_new(0);
        Rule rule;
        rule.read(a);
        rule.read_constants(table.constants());
        float shrink = 1.0f;
        if constexpr (Segments::SCALED) shrink = a.at<float>(Rule::HYPER)[2];
        const float unscale = a.has(Rule::SCALER) ? a.at<float>(Rule::SCALER)[2] : 1.0f;
        const bool overflow = overflowed(a);
        Finder finder;
        finder.read(table);
        mine = row_at(table, threadIdx.x / SHARE);
        Row low, high;
        const int low_s = finder.find(table, first, low), high_s = finder.find(table, past - 1, high);
        const bool single = low_s == high_s;
        if (overflow) {
            met();
            if (block == 0) write_zeros(a, count);
            return false;
        }

        UpdateSum sum = {0u, 0.0f, 0.0f};
        int valid[EACH];
        const auto write_one = [&](int round, int e) {
            const i64 at = (i64)(unit_of(round, e) + half) * UNIT + lane % LANES * V;
            write_group(param, at, own[e].p, valid[e]);
#pragma unroll
            for (int k = 0; k < STATES; ++k) write_group(a.at<float>(Rule::STATE + k), at, own[e].s[k], valid[e]);
            if (shadow == nullptr) return;
            Vec<T, V> copy;
#pragma unroll
            for (int j = 0; j < V; ++j) copy.v[j] = narrow<T>(own[e].p.v[j]);
            write_group(shadow, at, copy, valid[e]);
        };
        // If other blocks wait for the metrics, they are written before the results.
        constexpr bool LATE = FINISH != FINISH_PHASE && ROUNDS == 1;
        const auto write_late = [&] {
            if constexpr (LATE) {
#pragma unroll
                for (int e = 0; e < EACH; ++e) write_one(0, e);
            }
        };
        bool waited = !CLUSTER;
#pragma unroll 1
        for (int round = 0; round < ROUNDS; ++round) {
            if (ROUNDS > 1 && round > 0) read_old(round), read_new(round);
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const u32 unit = unit_of(round, e) + half;
                Row row = low;
                int of = low_s;
                if (!single) {
                    Row next;
                    const int here = finder.find(table, unit - half, row),
                              there = finder.find(table, unit - half + 1, next);
                    if (half == 1) row = next;
                    if constexpr (Segments::EXEMPTS) of = half == 1 ? there : here;
                }
                if constexpr (Segments::EXEMPTS) rule.wd = table.exempt(of) ? 0.0f : a.at<float>(Rule::HYPER)[1];
                const int rest = unit < end ? row.len - (int)(unit - row.start) * UNIT - lane % LANES * V : 0;
                valid[e] = max_i(min_i(rest, V), 0);
                UpdateSum m = {0u, 0.0f, 0.0f};
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    const float old = own[e].p.v[j], g = own[e].g.v[j] * unscale;
                    const float used = Segments::SCALED ? g * shrink : g;
                    own[e].p.v[j] = rule.step(old, used, own[e].s[0].v[j], own[e].s[1].v[j]);
                    if (j < valid[e]) m.count(own[e].p.v[j] - old, g);
                }
                if constexpr (!LATE) write_one(round, e);
                if (!metrics) continue;
                if (!CLUSTER && single) sum.add(m);
                else {
                    const UpdateMetric all = lanes_metric<LANES>(m).stored();
                    if (REMOTE && !waited) met(), waited = true;
                    if constexpr (CLUSTER) {
                        if (lane % LANES == 0 && unit < end) post(shared + (unit - start), all, smem);
                    } else if (lane % LANES == 0) shared[unit - first] = all;
                }
            }
        }
        bool last = false;
        if constexpr (CLUSTER) {
            if (!waited) met();
            write_late();
            if (!metrics || block != 0) return false;
            wait_for_units(smem);
            return true;
        } else if (metrics) {
            UpdateMetric* work = a.at<UpdateMetric>(Rule::WORK) + block;
            u32 drawn = 0;
            // If a segment starts with the block, no block uses the preceding pair.
            if (DIRECT && threadIdx.x == 0 && block > 0 && low.start == first) work[low_s - 1] = UpdateMetric{0u, 0.0f};
            if (single) {
                sum = lanes_metric(sum);
                if (WARPS > 1) {
                    if (lane == 0) scratch[warp] = sum.stored();
                    __syncthreads();
                    if (warp == 0) {
                        sum = UpdateSum{0u, 0.0f, 0.0f};
                        if (lane < WARPS) sum.add(scratch[lane]);
                        sum = lanes_metric<power_above(WARPS)>(sum);
                    }
                }
                if (threadIdx.x == 0) work[low_s] = sum.stored();
            } else {
                __syncthreads();
                for (int s = low_s + warp; s <= high_s; s += WARPS) {
                    const Row row = row_at(table, s);
                    const int from = row.start > first ? row.start - first : 0,
                              to = (int)(min(row.start + units(row), past) - first);
                    UpdateSum m = {0u, 0.0f, 0.0f};
                    for (int i = from + lane; i < to; i += 32) m.add(shared[i]);
                    m = lanes_metric(m);
                    if (lane == 0) work[s] = m.stored();
                }
                __syncthreads();
            }
            if (FINISH == FINISH_TICKET && blocks > 1 && threadIdx.x == 0) drawn = draw(a.at<u32>(Rule::TICKET));
            write_late();
            if constexpr (FINISH == FINISH_TICKET) {
                u32* is_last = (u32*)(smem + HEAD - 16);
                if (threadIdx.x == 0) {
                    *is_last = blocks == 1 || drawn == blocks - 1;
                    if (blocks > 1 && drawn == blocks - 1) {
                        *a.at<u32>(Rule::TICKET) = 0;
                        __threadfence();
                    }
                }
                __syncthreads();
                last = *is_last != 0;
            }
        } else write_late();
        return last;
    }

    template <class E> static __device__ __forceinline__ Vec<E, V> read_group(
        const Table& table, const E* from, i64 at) {
        if constexpr (!FIXED || LEN % V != 0) {
            Vec<E, V> out;
            if (at + V > table.len) {
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    if (at + j < table.len) out.v[j] = from[at + j];
                }
                return out;
            }
        }
        return load<E, V>(from + at);
    }
    template <class E>
    static __device__ __forceinline__ void write_group(E* to, i64 at, const Vec<E, V>& v, int valid) {
        if (valid == V) store<E, V>(to + at, v);
        else {
#pragma unroll
            for (int j = 0; j < V - 1; ++j) {
                if (j < valid) to[at + j] = v.v[j];
            }
        }
    }

    // The metrics of every segment and their totals, from the partial results: SHARE neighbouring threads for each
    // segment. `mine` is the row of this thread's first segment.
    static __device__ __forceinline__ void reduce(const Args& a, const Table& table, char* smem, const Row& mine) {
        const int count = table.count, all_parts = parts(table), tile_parts = tile_of(all_parts);
        UpdateMetric *results = (UpdateMetric*)(smem + HEAD), *staged = (UpdateMetric*)(smem + HEAD + 8 * count);
        const int lane = threadIdx.x % 32, share = threadIdx.x % SHARE;
#pragma unroll 1
        for (int tile = 0; tile < all_parts; tile += tile_parts) {
            if constexpr (!CLUSTER) {
                const float2* work = a.at<float2>(Rule::WORK) + tile;
                if (tile > 0) __syncthreads();
#pragma unroll
                for (int i = threadIdx.x; i < tile_parts; i += THREADS) {
                    // Other blocks wrote it, so it is read from the second-level cache.
                    if (tile + i < all_parts) *(float2*)(staged + i) = __ldcg(work + i);
                }
                __syncthreads();
            }
#pragma unroll 1
            for (int base = 0; base < count; base += THREADS / SHARE) {
                const int s = base + threadIdx.x / SHARE;
                const Row row = base == 0 ? mine : row_at(table, s);
                int from = 0, to = 0;
                if (s < count && row.len > 0) {
                    from = row.start - table.first, to = from + units(row);
                    if constexpr (!CLUSTER) from = from / PER_BLOCK + s, to = (to - 1) / PER_BLOCK + s + 1;
                    from = max_i(from - tile, 0), to = min_i(to - tile, tile_parts);
                }
                UpdateSum m = {0u, 0.0f, 0.0f};
                if constexpr (STEPS <= 8) {
                    // All loads in flight at once.
                    UpdateMetric part[STEPS];
#pragma unroll
                    for (int k = 0; k < STEPS; ++k) {
                        const int i = from + share + k * SHARE;
                        part[k] = i < to ? staged[i] : UpdateMetric{0u, 0.0f};
                    }
#pragma unroll
                    for (int k = 0; k < STEPS; ++k) m.add(part[k]);
                } else {
#pragma unroll 4
                    for (int i = from + share; i < to; i += SHARE) m.add(staged[i]);
                }
                m = lanes_metric<SHARE>(m);
                if (share != 0 || s >= count) continue;
                if (tile > 0) m.add(results[s]);
                if constexpr (!DIRECT) results[s] = m.stored();
                if (tile + tile_parts < all_parts) continue;
                if (a.has(Rule::UPDATE_MAX)) a.at<u32>(Rule::UPDATE_MAX)[s] = m.max;
                if (a.has(Rule::GRAD_NORM_SEG)) a.at<float>(Rule::GRAD_NORM_SEG)[s] = m.norm();
            }
        }
        if (!a.has(Rule::TOTAL_MAX) && !a.has(Rule::GRAD_NORM)) return;
        UpdateSum total = {0u, 0.0f, 0.0f};
        if constexpr (DIRECT) {
            // The last warp, which has the fewest segments, does not wait for the others.
            if (threadIdx.x / 32 != WARPS - 1) return;
#pragma unroll 8
            for (int i = lane; i < all_parts; i += 32) total.add(staged[i]);
        } else {
            __syncthreads();
            if (threadIdx.x >= 32) return;
            for (int s = lane; s < count; s += 32) total.add(results[s]);
        }
        total = lanes_metric(total);
        if (lane != 0) return;
        if (a.has(Rule::TOTAL_MAX)) *a.at<u32>(Rule::TOTAL_MAX) = total.max;
        if (a.has(Rule::GRAD_NORM)) *a.at<float>(Rule::GRAD_NORM) = total.norm();
    }

    // The metrics of a step that overflowed.
    static __device__ __forceinline__ void write_zeros(const Args& a, int count) {
        for (int s = threadIdx.x; s < count; s += THREADS) {
            if (a.has(Rule::UPDATE_MAX)) a.at<float>(Rule::UPDATE_MAX)[s] = 0.0f;
            if (a.has(Rule::GRAD_NORM_SEG)) a.at<float>(Rule::GRAD_NORM_SEG)[s] = 0.0f;
        }
        if (threadIdx.x != 0) return;
        if (a.has(Rule::TOTAL_MAX)) *a.at<float>(Rule::TOTAL_MAX) = 0.0f;
        if (a.has(Rule::GRAD_NORM)) *a.at<float>(Rule::GRAD_NORM) = 0.0f;
    }
};

// ---------------------------------------- loss scale

// Segments that a general member of ScaleUpdate reads from memory: number 2 is the address of their number, followed by
// their rows.
struct AnyRows {
    static constexpr i64 COUNT = ANY;
};

// Whether one of four consecutive elements of the vector belongs to a segment and is not finite. Padding has the bits
// of whatever was in its memory before.
template <class Segments> DEV bool overflows(const Args& a, i64 at, const Vec<u32, 4>& g) {
    int count;
    const u32* rows;
    if constexpr (is_fixed(Segments::COUNT)) count = (int)Segments::COUNT, rows = Segments::rows();
    else {
        const u32* words = (const u32*)(i64)Number<ANY, 2>(a);
        count = (int)words[0], rows = words + 1;
    }
    // The last segment that starts at or before this group.
    int low = 0, high = count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if ((i64)rows[middle * 2] * 64 <= at) low = middle;
        else high = middle;
    }
    const i64 start = (i64)rows[low * 2] * 64, own = at < start ? 0 : start + rows[low * 2 + 1] - at;
    bool found = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) found |= j < own && (g.v[j] & 0x7fffffffu) >= 0x7f800000u;
    return found;
}

// Slots: 0 grad [len] float, 1 scaler_prev [5] float or unbound, 2 scaler [5] float, 3 work, 4 ticket u32.
// scaler is: the scale of the loss, steps since the last overflow, 1 / the scale of this step's gradients, 1.0 where
// one of them is not finite, and the number of steps that were skipped for that reason since the run began. An overflow
// halves the scale; 2000 steps without one double it. BLOCKS (at most 1024) blocks of THREADS threads stride over
// groups of 16 bytes. The lower half of the ticket counts blocks, and the upper half counts overflows; the last block
// computes the new scale and resets the ticket to zero, so work is not used. LEN and BLOCKS are the numbers 0 and 1;
// LEN is a multiple of 4. Overwrites; deterministic. Reads the gradients once.
template <class Segments, i64 LEN, int THREADS_, i64 BLOCKS> struct ScaleUpdate {
    using Slots = slots::scale_update;
    static constexpr int PHASES = 1, THREADS = THREADS_, FLIGHT = 4;
    static constexpr int blocks(int) { return BLOCKS; }
    DEV int blocks_for(const Args& a, int) { return (int)Number<BLOCKS, 1>(a); }
    static constexpr int smem(int) { return 0; }
    static constexpr i64 WORK = 0;
    static_assert(BLOCKS <= 1024, "the ticket's halves hold 16 bits each");
    static_assert(!is_fixed(LEN) || LEN % 4 == 0, "segments and their padding consist of whole groups");
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const Number<LEN, 0> len(a);
        const Number<BLOCKS, 1> all(a);
        const i64 vecs = len / 4, blocks = all;
        const u32* grad = a.at<u32>(Slots::GRAD);
        bool overflow = false;
#pragma unroll 1
        for (i64 base = (i64)block * (THREADS * FLIGHT) + threadIdx.x; base < vecs;
            base += blocks * (THREADS * FLIGHT)) {
            Vec<u32, 4> g[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; ++f) {
                const i64 at = base + f * THREADS;
                g[f] = at < vecs ? load<u32, 4>(grad + at * 4) : Vec<u32, 4>{};
            }
#pragma unroll
            for (int f = 0; f < FLIGHT; ++f) {
                // A float is finite if its bits without the sign are below those of infinity.
                u32 largest = 0;
#pragma unroll
                for (int j = 0; j < 4; ++j) largest = max(largest, g[f].v[j] & 0x7fffffffu);
                if (largest >= 0x7f800000u) overflow |= overflows<Segments>(a, (base + f * THREADS) * 4, g[f]);
            }
        }
        overflow = __syncthreads_or(overflow) != 0;
        if (threadIdx.x != 0) return;
        if constexpr (BLOCKS != 1) {
            const u32 own = overflow ? 0x10001u : 1u;
            const u32 count = atomicAdd(a.at<u32>(Slots::TICKET), own) + own;
            if ((count & 0xffffu) != (u32)blocks) return;
            *a.at<u32>(Slots::TICKET) = 0;
            overflow = count >> 16 != 0;
        }
        float* scaler = a.at<float>(Slots::SCALER);
        const float* prev = a.has(Slots::SCALER_PREV) ? a.at<float>(Slots::SCALER_PREV) : scaler;
        float scale = prev[0], steps = overflow ? 0.0f : prev[1] + 1.0f;
        scaler[2] = 1.0f / scale;
        scaler[3] = overflow ? 1.0f : 0.0f;
        if (overflow) scale = fmaxf(scale * 0.5f, 1.0f);
        if (steps >= 2000.0f) scale = fminf(scale * 2.0f, 16777216.0f), steps = 0.0f;
        scaler[0] = scale;
        scaler[1] = steps;
        scaler[4] = prev[4] + (overflow ? 1.0f : 0.0f);
    }
};

// ---------------------------------------- metrics of updates that are fused into gradients

// The metrics of a step from the partial metrics of its updates: pairs, of which 32 consecutive ones, a unit, belong to
// one segment. `rows` of Segments is the first unit and the units of each of its COUNT segments, declared as above;
// UNITS is their total. Slots: parts, update_max_seg, grad_norm_seg, update_max, grad_norm; outputs are written if
// bound. One block, which adds in a fixed order; all loads are in flight before the first one is used. Moves 256 bytes
// a unit.
//
// A general member reads COUNT and UNITS from number 0, 32 bits each, and the rows from memory at the address that is
// number 1; its capacity is MOST_UNITS and MOST_SEGMENTS. It is compiled for FLIGHT, the units of a warp that are in
// flight.
struct AnyMetrics {
    static constexpr i64 COUNT = ANY;
    static constexpr int MOST_UNITS = 2048, MOST_SEGMENTS = 512;
};
template <class Segments, i64 UNITS, int WARPS_ = min_i(8, max_i(4, (int)UNITS)),
    int FLIGHT_ = min_i(ceil_div(UNITS, WARPS_), 24)>
struct StepMetrics {
    using Slots = slots::step_metrics;
    using Table = RowTable<Segments, UNITS, true>;
    static constexpr int PHASES = 1, WARPS = WARPS_, THREADS = 32 * WARPS, FLIGHT = FLIGHT_,
                         SPREAD = power_above(FLIGHT),
                         MOST_LANES = is_fixed(UNITS) ? min_i(Segments::COUNT, 32) : 32;
    static constexpr bool BEGINS = !is_fixed(UNITS);
    static constexpr i64 WORK = 0;
    static_assert(WARPS > 1, "one warp adds up the segments, the others write them");
    static constexpr int blocks(int) { return 1; }
    DEV int blocks_for(const Args&, int) { return 1; }
    static constexpr int smem(int) {
        if constexpr (is_fixed(UNITS)) return 8 * (int)(UNITS + Segments::COUNT);
        else return 8 * (Segments::MOST_UNITS + Segments::MOST_SEGMENTS);
    }
    // Metrics of units, each summed over one partial result of every lane; lane l gets those of unit l / (32 / SPREAD).
    DEV UpdateMetric spread_metric(const float2 (&part)[FLIGHT]) {
        u32 max[SPREAD] = {};
        float up[SPREAD] = {};
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
            UpdateSum own = {0u, 0.0f, 0.0f};
            own.add(UpdatePart{__float_as_uint(part[i].x), part[i].y});
            max[i] = own.max, up[i] = own.up;
        }
        UpdateSum sum = {spread_reduce<LargerBits>(max), spread_reduce<Sum>(up), 0.0f};
        if (__any_sync(0xffffffffu, isinf(sum.up))) {
            float down[SPREAD] = {};
#pragma unroll
            for (int i = 0; i < FLIGHT; ++i) {
                const float small = part[i].y * SQUARE_DOWN;
                down[i] = small * small;
            }
            sum.down = spread_reduce<Sum>(down);
        }
        return sum.stored();
    }
    // The sum of `count` metrics by the first LANES lanes of a warp. They are read again if their gradients are large.
    template <int LANES> DEV UpdateMetric total_of(const UpdateMetric* from, int count) {
        const int lane = threadIdx.x % 32;
        UpdateSum sum = {0u, 0.0f, 0.0f};
#pragma unroll(is_fixed(UNITS) ? 2 : 1)
        for (int i = lane; i < count; i += 32) {
            sum.widen(from[i].max);
            sum.up += from[i].square < 0.0f ? __int_as_float(0x7f800000) : from[i].square;
        }
        const auto down = [&] {
#pragma unroll 1
            for (int i = lane; i < count; i += 32) sum.add(from[i]);
            return sum.down;
        };
        return lanes_metric<LANES>(sum.max, sum.up, down).stored();
    }
    template <int PHASE> static __device__ void run(const Args& a, int, char* smem) {
        const Table table(a);
        const int all_units = table.total, segments = table.count, each = ceil_div(all_units, WARPS);
        UpdateMetric *units = (UpdateMetric*)smem, *results = units + all_units;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        // The first segment of a warp: searched while the partial metrics are loaded.
        const u32* const rows = table.rows();
        u32 first = 0, count = 0;
        if (warp < segments) first = rows[warp * 2], count = rows[warp * 2 + 1];
        // The table of a general member is read before the preceding launch is done: no launch writes it.
        if constexpr (BEGINS) begin(a);
        const float2* const parts = a.at<float2>(Slots::PARTS);
#pragma unroll 1
        for (int base = 0; base < each; base += FLIGHT) {
            float2 part[FLIGHT];
#pragma unroll
            for (int i = 0; i < FLIGHT; ++i) {
                const int unit = warp + (base + i) * WARPS;
                part[i] = unit < all_units ? parts[unit * 32 + lane] : float2{0.0f, 0.0f};
            }
            const UpdateMetric sum = spread_metric(part);
            const int value = lane / (32 / SPREAD), unit = warp + (base + value) * WARPS;
            if (lane % (32 / SPREAD) == 0 && value < FLIGHT && unit < all_units) units[unit] = sum;
        }
        __syncthreads();
        for (int s = warp; s < segments; s += WARPS) {
            if (s != warp) first = rows[s * 2], count = rows[s * 2 + 1];
            const UpdateMetric sum = total_of<32>(units + first, count);
            if (lane == 0) results[s] = sum;
        }
        __syncthreads();
        if (warp != 0) {
            // The total does not depend on the square roots of the segments, so that it does not wait for them.
#pragma unroll 1
            for (int s = threadIdx.x - 32; s < segments; s += THREADS - 32) {
                if (a.has(Slots::UPDATE_MAX_SEG)) a.at<u32>(Slots::UPDATE_MAX_SEG)[s] = results[s].max;
                if (a.has(Slots::GRAD_NORM_SEG)) a.at<float>(Slots::GRAD_NORM_SEG)[s] = results[s].norm();
            }
            return;
        }
        if (!a.has(Slots::UPDATE_MAX) && !a.has(Slots::GRAD_NORM)) return;
        const UpdateMetric total = total_of<power_above(MOST_LANES)>(results, segments);
        if (lane != 0) return;
        if (a.has(Slots::UPDATE_MAX)) *a.at<u32>(Slots::UPDATE_MAX) = total.max;
        if (a.has(Slots::GRAD_NORM)) *a.at<float>(Slots::GRAD_NORM) = total.norm();
    }
};

// The metrics of StepMetrics, whose type is Metrics, in the same launch as the data feed of the next step. They are
// also written to the record of the step before the counter's: the largest update to word MAX and the gradient norm to
// word NORM, unless that number is negative. Records are those of Feed. Slots: those of Metrics, counter, records.
template <class Metrics, int RING, int MAX, int NORM> struct ClosingMetrics {
    using Slots = slots::step_metrics;
    enum : int { COUNTER = Slots::GRAD_NORM + 1, RECORDS };
    static constexpr int PHASES = 1, THREADS = Metrics::THREADS;
    static constexpr bool BEGINS = Begins<Metrics>::VALUE;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return 1; }
    static constexpr int smem(int phase) { return Metrics::smem(phase); }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        Metrics::run<PHASE>(a, block, smem);
        // The thread that wrote the totals.
        if (threadIdx.x != 0) return;
        u32* const closed = a.at<u32>(RECORDS) + ((u64)a.at<i64>(COUNTER)[1] + RING - 1) % RING * 16;
        if constexpr (MAX >= 0) closed[MAX] = a.at<u32>(Slots::UPDATE_MAX)[0];
        if constexpr (NORM >= 0) closed[NORM] = a.at<u32>(Slots::GRAD_NORM)[0];
    }
};
