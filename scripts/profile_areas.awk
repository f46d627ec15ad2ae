#!/usr/bin/awk -f
# Condenses the output of callgrind_annotate for scripts/profile.sh: instructions per call (`calls`
# is the number of calls), by area and by function. With `ours`: only functions of this project, and
# of sqlx, tonic, h2 and prost.
function area(name) {
    if (name ~ /anneal_core::tokens/) return "estimates and counts of tokens"
    if (name ~ /sha2|digest/) return "digests"
    if (name ~ /serde|itoa|ryu|format_escaped/) return "JSON"
    if (name ~ /prost|anneal_proto/) return "protobuf"
    if (name ~ /h2::|hpack|http::|hyper|tonic|tower|axum|base64|percent/) return "HTTP/2 and gRPC"
    if (name ~ /sqlx/) return "PostgreSQL's protocol (sqlx)"
    if (name ~ /tracing|metrics|sharded_slab/) return "spans, logs, metrics"
    if (name ~ /tokio|mio::|futures|parking_lot|deadpool|epoll|pthread|futex/) return "tokio, pools, locks"
    if (name ~ /malloc|free|calloc|realloc|unlink_chunk|arena/) return "allocator"
    if (name ~ /mem(cpy|move|set|cmp)|memchr/) return "copies, fills, comparisons of memory"
    if (name ~ /anneal_/) return "anneal's own"
    return "the rest (std, alloc, libc)"
}
/^ *[0-9,]+ +\([ 0-9.]+%\) / {
    count = $1; gsub(",", "", count)
    name = $0; sub(/^ *[0-9,]+ +\([ 0-9.]+%\) +/, "", name)
    if (name == "PROGRAM TOTALS") { total = count; next }
    sub(/ \[[^]]*\]$/, "", name); sub(/^[^:]*:/, "", name)
    if ( (ours && name !~ /anneal_|sqlx|tonic::|h2::proto|prost/)) next
    areas[area(name)] += count
    if (++functions <= (ours ? 40 : 30)) line[functions] = sprintf("%10d %5.1f %%  %s", count / calls, 100 * count / total, substr(name, 1, 110))
}
END {
    if (!ours) {
        printf "Instructions of one call (%s), of %d calls: %d\n\nBy area (exclusive):\n\n", what, calls, total / calls
        for (name in areas) printf "%10d %5.1f %%  %s\n", areas[name] / calls, 100 * areas[name] / total, name | "sort -rn"
        close("sort -rn")
        print "\nBy function (exclusive):\n"
    }
    for (place = 1; place <= functions && place <= (ours ? 40 : 30); place++) print line[place]
}
