// The factors of an update: the learning rate of a schedule, and gradient clipping by norm.
//
// The segments of the gradient are declared before the type of `GradNorms` as
//
//     static __device__ const u32 RUN_ROWS[COUNT * 3] = {first run, first element / 64, elements, ...};
//     struct Runs {
//         static constexpr int COUNT, RUNS;
//         static __device__ const u32* rows();
//     };
//
// where a run is EACH consecutive elements of one segment; the last run of a segment may have fewer.

// grad_norm_seg [COUNT] (float): the norm of each segment of grad (float), divided by BATCHES. With `scaler` bound,
// gradients are multiplied by scaler[2] first. A block sums a run, and each thread groups of 16 bytes; in a second
// phase, one warp for each segment adds up its runs in order. Reads the segments once.
//
// EACH and BATCHES are the numbers 1 and 2. A general member reads the segments from memory at the address that is
// number 0: COUNT, RUNS, then the rows.
struct AnyRuns {
    static constexpr i64 COUNT = ANY, RUNS = ANY;
};
template <class Runs, i64 EACH, i64 BATCHES> struct GradNorms {
    using Slots = slots::grad_norms;
    static constexpr int PHASES = 2, THREADS = 256, WARPS = THREADS / 32;
    using Table = RowTable<Runs, Runs::RUNS>;
    static constexpr i64 WORK = 8ll * Runs::RUNS;
    static constexpr int blocks(int phase) { return phase == 0 ? Runs::RUNS : ceil_div(Runs::COUNT, WARPS); }
    DEV int blocks_for(const Args& a, int phase) {
        const Table table(a);
        return phase == 0 ? table.total : ceil_div(table.count, WARPS);
    }
    static constexpr int smem(int phase) { return phase == 0 ? WARPS * sizeof(UpdateSum) : 0; }

    // The segment of a run: the last one that begins at or before it.
    DEV int segment_of(const Table& table, u32 run) {
        const u32* rows = table.rows();
        int low = 0, high = table.count;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (rows[middle * 3] <= run) low = middle;
            else high = middle;
        }
        return low;
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char* smem) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 + (PHASE == 0 ? 0 : block * WARPS);
        const Table table(a);
        UpdateSum sum = {0u, 0.0f, 0.0f};
        if constexpr (PHASE == 0) {
            const Number<EACH, 1> each(a);
            const u32* row = table.rows() + segment_of(table, block) * 3;
            const i64 before = (i64)(block - row[0]) * each;
            const float* from = a.at<float>(Slots::GRAD) + (i64)row[1] * 64 + before;
            const int count = (int)((i64)row[2] - before < each ? (i64)row[2] - before : (i64)each);
            const float unscale = a.has(Slots::SCALER) ? a.at<float>(Slots::SCALER)[2] : 1.0f;
#pragma unroll 4
            for (int i = threadIdx.x * 4; i < count; i += THREADS * 4) {
                // Groups may reach into the padding after a segment, which exists but is not counted.
                const Vec<float, 4> group = load<float, 4>(from + i);
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (i + j < count) sum.add_norm(group.v[j] * unscale);
            }
            sum = lanes_metric(sum);
            UpdateSum* sums = (UpdateSum*)smem;
            if (lane == 0) sums[warp] = sum;
            __syncthreads();
            if (threadIdx.x != 0) return;
#pragma unroll
            for (int other = 1; other < WARPS; ++other) sum.add(sums[other]);
            a.at<UpdateMetric>(Slots::WORK)[block] = sum.stored();
        } else {
            if (warp >= table.count) return;
            const u32 first = table.rows()[warp * 3];
            const u32 past = warp + 1 < table.count ? table.rows()[warp * 3 + 3] : (u32)table.total;
#pragma unroll 4
            for (u32 i = first + lane; i < past; i += 32) sum.add(a.at<UpdateMetric>(Slots::WORK)[i]);
            sum = lanes_metric(sum);
            if (lane == 0) a.at<float>(Slots::GRAD_NORM_SEG)[warp] = sum.norm() / (float)(i64)Number<BATCHES, 2>(a);
        }
    }
};

enum ScheduleKind { SCHEDULE_CONSTANT = 0, SCHEDULE_LINEAR = 1, SCHEDULE_COSINE = 2, SCHEDULE_STEP = 3 };

// rates [2 or 3] (float): the rate at the step of `counter`, the weight decay, and, if CLIP is not zero or BATCHES is
// not one, the factor of the gradients; without SEGMENTS their norm is zero. CLIP, LAST and FACTOR are the bits of f64
// values. One warp; everything is computed in double and rounded. All but KIND are numbers, in this order; a general
// member is compiled for whether CLIP and SEGMENTS are zero and whether BATCHES is one.
template <int KIND, i64 WARMUP, u64 LAST, i64 EVERY, u64 FACTOR, u64 CLIP, i64 SEGMENTS, i64 BATCHES>
struct UpdateRates : OneBlock<32> {
    using Slots = slots::update_rates;
    DEV double number(i64 bits) { return __longlong_as_double(bits); }
    DEV double rate(const Args& a, double lr, i64 step, i64 total) {
        const Number<WARMUP, 0> given_warmup(a);
        const Number<(i64)LAST, 1> last(a);
        const i64 warmup = given_warmup;
        if (step <= warmup) return lr * (double)step / (double)warmup;
        const double length = (double)total - (double)warmup;
        const double p = step < total ? ((double)step - (double)warmup) / length : 1.0;
        // Rounded one by one, as on a CPU: near the middle of two floats, a fused product would give the other one.
        if constexpr (KIND == SCHEDULE_LINEAR)
            return lr * (1.0 - (1.0 - number(last)) * p);
        if constexpr (KIND == SCHEDULE_COSINE)
            return lr * (number(last) + (1.0 - number(last)) * (1.0 + cos(3.14159265358979312 * p)) / 2.0);
        if constexpr (KIND == SCHEDULE_STEP) {
            const double factor = number(Number<(i64)FACTOR, 3>(a));
            return lr * pow(factor, (double)((step - 1) / Number<EVERY, 2>(a)));
        }
        return lr;
    }
    template <int PHASE> static __device__ void run(const Args& a, int, char*) {
        double square = 0.0;
        if constexpr (SEGMENTS != 0) {
            const Number<SEGMENTS, 5> segments(a);
            for (int i = threadIdx.x; i < (int)segments; i += 32) {
                const double norm = a.at<float>(Slots::GRAD_NORM_SEG)[i];
                square += norm * norm;
            }
#pragma unroll
            for (int mask = 16; mask > 0; mask >>= 1) square += __shfl_xor_sync(0xffffffffu, square, mask);
        }
        if (threadIdx.x != 0) return;
        const float* hyper = a.at<float>(Slots::HYPER);
        float* rates = a.at<float>(Slots::RATES);
        float lr = hyper[0];
        if (a.has(Slots::COUNTER)) {
            const i64 total = a.has(Slots::STEPS) ? *a.at<i64>(Slots::STEPS) : 0;
            lr = (float)rate(a, hyper[0], a.at<i64>(Slots::COUNTER)[1], total);
        }
        rates[0] = lr;
        rates[1] = hyper[1];
        if constexpr (CLIP != 0 || BATCHES != 1) {
            double limit = 1.0;
            if constexpr (CLIP != 0) limit = number(Number<(i64)CLIP, 4>(a)) / (sqrt(square) + 1e-6);
            // NaN is returned unchanged.
            rates[2] = (float)((limit > 1.0 ? 1.0 : limit) / (double)(i64)Number<BATCHES, 6>(a));
        }
    }
};
