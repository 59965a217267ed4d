// Gathers batches from a data set on the device, and records the metrics of each step, which the host reads later.

// Element type conversions of a batch: samples and targets are floats, classes are ints.
template <class To> struct Fed {
    DEV To of(float v) { return narrow<To>(v); }
};
template <> struct Fed<int> {
    DEV int of(int v) { return v; }
};

// The sample at a position of an epoch of COUNT samples: a Feistel network over the bits of COUNT - 1 with the epoch's
// keys, repeated until the number is below COUNT. The host computes the same (data/shuffle.rs).
struct Shuffle {
    static __host__ __device__ constexpr int bits(u32 last) { return last < 4 ? 2 : 1 + bits(last / 2); }
    DEV u32 hash(u32 value, u32 key) {
        u32 mixed = (value ^ key) * 0x9E3779B1u;
        mixed = (mixed ^ mixed >> 16) * 0x85EBCA6Bu;
        return mixed >> 16;
    }
    // `all` are the bits of `count` - 1.
    DEV u32 at(u32 number, u32 count, int all, const u32 (&keys)[12]) {
        const int half = all / 2, rest = all - half;
        do {
            u32 high = number >> rest, low = number & ((1u << rest) - 1);
#pragma unroll
            for (int i = 0; i < 12; i += 2) {
                low ^= hash(high, keys[i]) & ((1u << rest) - 1);
                high ^= hash(low, keys[i + 1]) & ((1u << half) - 1);
            }
            number = high << rest | low;
        } while (number >= count);
        return number;
    }
};

// One half of number INDEX of the arguments, or N if the kernel is compiled for it.
template <i64 N, int INDEX, bool UPPER> DEV u32 half_number(const Args& a) {
    if constexpr (is_fixed(N)) return (u32)N;
    else return (u32)((u64)a.p[18 - INDEX] >> (UPPER ? 32 : 0));
}

// Before step s (the counter's): x [BATCH, WX] (X) and y [BATCH, WY] (Y) from samples [n, WX] (float) and targets [n,
// WY] (Y_IN). Places [RING, 16] (u32) contains at s % RING the 12 keys of the epoch's shuffle and the position of the
// batch in the epoch; COUNT is the number of samples, or 0 if they come in order. The record of step s - 1 is completed
// with the time and the first WATCHED floats of the watched values, except those whose bit is set in LEFT; the record
// of step s is started. LAST: only completes the record. Records are [RING, 16] words: begin and end in nanoseconds
// (u64), then the floats. Slots: samples, targets, places, counter, records, x, y, then the watched values. Overwrites;
// moves 2 * BATCH
// * (WX + WY) elements.
//
// WX and WY are the halves of number 0, BATCH and COUNT of number 1, WATCHED and LEFT of number 2, the lower half
// first.
// A general member is compiled for whether samples come in order, and for V, the elements of an access.
template <class X, i64 WX, class Y_IN, class Y, i64 WY, i64 BATCH, i64 COUNT, i64 WATCHED, i64 LEFT, int RING,
    bool LAST, int V = WX % 4 == 0 ? 4 : WX % 2 == 0 ? 2 : 1>
struct Feed {
    enum : int { SAMPLES, TARGETS, PLACES, COUNTER, RECORDS, BATCH_X, BATCH_Y, FIRST_WATCHED };
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr bool BEGINS = true;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return LAST ? 1 : ceil_div(BATCH * (WX / V), THREADS); }
    DEV int blocks_for(const Args& a, int) {
        return LAST ? 1 : ceil_div((i64)half_number<BATCH, 1, false>(a) * (half_number<WX, 0, false>(a) / V), THREADS);
    }
    static constexpr int smem(int) { return 0; }

    DEV u64 now() {
        u64 ns;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
        return ns;
    }

    // With EARLY_A the samples of the batch are determined before the preceding launch is done, because that launch
    // neither counts steps nor writes samples.
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const int wx = (int)half_number<WX, 0, false>(a), wy = (int)half_number<WY, 0, true>(a), across = wx / V;
        const u32 count = half_number<COUNT, 1, true>(a), left = half_number<LEFT, 2, true>(a);
        const int at = block * THREADS + threadIdx.x, row = at / across, col = at % across * V;
        const bool mine = !LAST && at < (int)half_number<BATCH, 1, false>(a) * across;
        const bool early = launch_flags(a) & EARLY_A;
        // Both cases share one copy of the following code: the kernel is so short that the time to fetch its code
        // matters.
        if (!early) begin(a);
        const u64 step = (u64)a.at<i64>(COUNTER)[1];
        // The threads of a row share the copy of its targets.
        const int first = col / V;
        i64 sample = 0;
        Vec<float, V> in;
        Y_IN target{};
        if (mine) {
            const u32* place = a.at<u32>(PLACES) + step % RING * 16;
            u32 keys[12];
#pragma unroll
            for (int i = 0; i < 12; ++i) keys[i] = place[i];
            sample = place[12] + row;
            if constexpr (is_fixed(COUNT) && COUNT > 0)
                sample = Shuffle::at((u32)sample, count, Shuffle::bits((u32)COUNT - 1), keys);
            if constexpr (COUNT == ANY)
                sample = Shuffle::at((u32)sample, count, max_i(2, 32 - __clz((int)(count - 1))), keys);
            in = load<float, V>(a.at<float>(SAMPLES) + sample * wx + col);
            if (first < wy) target = a.at<Y_IN>(TARGETS)[sample * wy + first];
        }
        if (early) begin(a);
        if (block == 0 && threadIdx.x < 32) {
            u32* closed = a.at<u32>(RECORDS) + (step + RING - 1) % RING * 16;
            if (threadIdx.x < (int)half_number<WATCHED, 2, false>(a) && (left >> threadIdx.x & 1) == 0)
                closed[4 + threadIdx.x] = a.at<u32>(FIRST_WATCHED + threadIdx.x)[0];
            if (threadIdx.x == 31) {
                const u64 ns = now();
                ((u64*)closed)[1] = ns;
                if constexpr (!LAST) ((u64*)(a.at<u32>(RECORDS) + step % RING * 16))[0] = ns;
            }
        }
        if constexpr (!LAST) {
            if (mine) {
                Vec<X, V> out;
#pragma unroll
                for (int i = 0; i < V; ++i) out.v[i] = Fed<X>::of(in.v[i]);
                store(a.at<X>(BATCH_X) + (i64)row * wx + col, out);
                Y* to = a.at<Y>(BATCH_Y) + (i64)row * wy;
                if (first < wy) to[first] = Fed<Y>::of(target);
                for (int i = first + across; i < wy; i += across)
                    to[i] = Fed<Y>::of(a.at<Y_IN>(TARGETS)[sample * wy + i]);
            }
        }
    }
};
