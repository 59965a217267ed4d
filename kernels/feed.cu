// Batches out of a data set that stays on the device, and what each step found, for the host to read later.

// Element type conversions of a batch: samples and targets are floats, classes are ints.
template <class To> struct Fed {
    DEV To of(float v) { return narrow<To>(v); }
};
template <> struct Fed<int> {
    DEV int of(int v) { return v; }
};

// The sample that is at a place of an epoch of COUNT samples: a network of Feistel's over the bits of COUNT - 1
// with the epoch's keys, until the number is one of a sample. The host computes the same (data/shuffle.rs).
template <u32 COUNT> struct Shuffle {
    static constexpr int bits(u32 last) { return last < 4 ? 2 : 1 + bits(last / 2); }
    static constexpr int BITS = bits(COUNT - 1), HIGH = BITS / 2, LOW = BITS - HIGH;
    DEV u32 hash(u32 value, u32 key) {
        u32 mixed = (value ^ key) * 0x9E3779B1u;
        mixed = (mixed ^ mixed >> 16) * 0x85EBCA6Bu;
        return mixed >> 16;
    }
    DEV u32 at(u32 number, const u32 (&keys)[12]) {
        do {
            u32 high = number >> LOW, low = number & ((1u << LOW) - 1);
#pragma unroll
            for (int i = 0; i < 12; i += 2) {
                low ^= hash(high, keys[i]) & ((1u << LOW) - 1);
                high ^= hash(low, keys[i + 1]) & ((1u << HIGH) - 1);
            }
            number = high << LOW | low;
        } while (number >= COUNT);
        return number;
    }
};

// Before step s (the counter's): x [BATCH, WX] (X) and y [BATCH, WY] (Y) from samples [n, WX] (float) and targets [n,
// WY] (Y_IN). Places [RING, 16] (u32) tell at s % RING the 12 keys of the epoch's shuffle and where in it the batch
// begins; COUNT is the number of samples, or 0 where they come in order. The record of step s - 1 is closed with the
// time and the WATCHED first floats of the watched values, but for those of which LEFT has the bit, that of step s
// begun. LAST: only closes the record. Records are [RING, 16] words: begin and end in nanoseconds (u64), then the
// floats. Slots: samples, targets, places, counter, records, x, y, then the watched values. Overwrites; moves 2 * BATCH
// * (WX + WY) elements.
template <class X, int WX, class Y_IN, class Y, int WY, int BATCH, u32 COUNT, int WATCHED, u32 LEFT, int RING,
    bool LAST>
struct Feed {
    enum : int { SAMPLES, TARGETS, PLACES, COUNTER, RECORDS, BATCH_X, BATCH_Y, FIRST_WATCHED };
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr bool BEGINS = true;
    static constexpr i64 WORK = 0;
    static constexpr int V = WX % 4 == 0 ? 4 : WX % 2 == 0 ? 2 : 1;
    static constexpr int blocks(int) { return LAST ? 1 : ceil_div((i64)BATCH * (WX / V), THREADS); }
    static constexpr int smem(int) { return 0; }

    DEV u64 now() {
        u64 ns;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
        return ns;
    }

    // Under EARLY_A the batch is looked up before the launch in front is done: that neither counts steps nor writes
    // samples.
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const int at = block * THREADS + threadIdx.x, row = at / (WX / V), col = at % (WX / V) * V;
        const bool mine = !LAST && at < BATCH * (WX / V), early = launch_flags(a) & EARLY_A;
        // One copy of what looks up: the code of so short a kernel is fetched while everybody waits for it.
        if (!early) begin(a);
        const u64 step = (u64)a.at<i64>(COUNTER)[1];
        // A row's threads share its targets.
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
            if constexpr (COUNT > 0) sample = Shuffle<COUNT>::at((u32)sample, keys);
            in = load<float, V>(a.at<float>(SAMPLES) + sample * WX + col);
            if (first < WY) target = a.at<Y_IN>(TARGETS)[sample * WY + first];
        }
        if (early) begin(a);
        if (block == 0 && threadIdx.x < 32) {
            u32* closed = a.at<u32>(RECORDS) + (step + RING - 1) % RING * 16;
            if (threadIdx.x < WATCHED && (LEFT >> threadIdx.x & 1) == 0)
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
                store(a.at<X>(BATCH_X) + (i64)row * WX + col, out);
                Y* to = a.at<Y>(BATCH_Y) + (i64)row * WY;
                if (first < WY) to[first] = Fed<Y>::of(target);
                for (int i = first + WX / V; i < WY; i += WX / V)
                    to[i] = Fed<Y>::of(a.at<Y_IN>(TARGETS)[sample * WY + i]);
            }
        }
    }
};
