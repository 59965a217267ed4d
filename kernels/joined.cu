// Concatenation along the last axis, and slices of it.

// y [ROWS, COLS]: the concatenation of x0 [ROWS, WIDTHS[0]], x1 [ROWS, WIDTHS[1]], ..., elements of T. V divides every
// width, and one access moves V elements. A thread copies one group of V. Overwrites; moves 2 * ROWS * COLS * sizeof(T)
// bytes. ROWS is number 0, and the widths are the numbers from 1 on.
template <class T, i64 ROWS, int V, i64... WIDTHS> struct Concat : OnePhase<256> {
    using Slots = slots::concat;
    static constexpr int blocks(int) { return ceil_div(ROWS * ((WIDTHS + ...) / V), THREADS); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(Number<ROWS, 0>(a) * across<0, WIDTHS...>(a), THREADS); }

    // Groups of a row, from the part with this number on.
    template <int SOURCE, i64 WIDTH, i64... REST> DEV i64 across(const Args& a) {
        const i64 own = Number<WIDTH, 1 + SOURCE>(a) / V;
        if constexpr (sizeof...(REST) == 0) return own;
        else return own + across<SOURCE + 1, REST...>(a);
    }
    // The value that column `col` belongs to; `col` becomes the column in that value.
    template <int SOURCE, i64 WIDTH, i64... REST> DEV Vec<T, V> part(const Args& a, i64 row, int col) {
        const int width = (int)Number<WIDTH, 1 + SOURCE>(a);
        if constexpr (sizeof...(REST) > 0)
            if (col >= width) return part<SOURCE + 1, REST...>(a, row, col - width);
        return load<T, V>(a.at<T>(Slots::X0 + SOURCE) + row * width + col);
    }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        const i64 groups = across<0, WIDTHS...>(a);
        const i64 group = (i64)block * THREADS + threadIdx.x, row = group / groups;
        if (group >= Number<ROWS, 0>(a) * groups) return;
        const int col = (int)(group % groups) * V;
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
