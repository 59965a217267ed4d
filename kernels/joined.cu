// Concatenation along the last axis, and slices of it.

// y [ROWS, COLS]: the concatenation of x0 [ROWS, WIDTHS[0]], x1 [ROWS, WIDTHS[1]], ..., elements of T. V divides every
// width, and one access moves V elements. A thread copies one group of V. Overwrites; moves 2 * ROWS * COLS * sizeof(T)
// bytes.
template <class T, i64 ROWS, int V, int... WIDTHS> struct Concat {
    using Slots = slots::concat;
    static constexpr int PHASES = 1, THREADS = 256, COLS = (WIDTHS + ...);
    static constexpr i64 WORK = 0, GROUPS = ROWS * (COLS / V);
    static constexpr int blocks(int) { return ceil_div(GROUPS, THREADS); }
    static constexpr int smem(int) { return 0; }

    // The value that column `col` belongs to; `col` becomes the column in that value.
    template <int SOURCE, int WIDTH, int... REST> DEV Vec<T, V> part(const Args& a, i64 row, int col) {
        if constexpr (sizeof...(REST) > 0)
            if (col >= WIDTH) return part<SOURCE + 1, REST...>(a, row, col - WIDTH);
        return load<T, V>(a.at<T>(Slots::X0 + SOURCE) + row * WIDTH + col);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 group = (i64)block * THREADS + threadIdx.x, row = group / (COLS / V);
        if (group >= GROUPS) return;
        const int col = (int)(group % (COLS / V)) * V;
        store(a.at<T>(Slots::Y) + group * V, part<0, WIDTHS...>(a, row, col));
    }
};

// y [ROWS, WIDTH] = x [ROWS, COLS] from column FROM on, elements of T. V divides COLS, FROM and WIDTH. Overwrites;
// moves 2 * ROWS * WIDTH * sizeof(T) bytes. ROWS, COLS, FROM and WIDTH are the numbers 0 to 3.
template <class T, i64 ROWS, int V, i64 COLS, i64 FROM, i64 WIDTH> struct Slice : RowGroups<ROWS, 0, WIDTH, 3, V> {
    using Slots = slots::slice;
    using Groups = RowGroups<ROWS, 0, WIDTH, 3, V>;
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 across = Number<WIDTH, 3>(a) / V;
        const i64 group = Groups::own_group(block), row = group / across;
        if (group >= Groups::groups_of(a)) return;
        const i64 col = Number<FROM, 2>(a) + group % across * V;
        store(a.at<T>(Slots::Y) + group * V, load<T, V>(a.at<T>(Slots::X) + row * Number<COLS, 1>(a) + col));
    }
};
