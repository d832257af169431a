# plot.gp - results.svg from own.dat, sessions.dat and orders.dat in the working
# directory, which bench.pl writes: a label, the ratio, and its middle half.

set terminal svg noenhanced size 1000,1080 font "sans-serif,12" background "white"
set output "results.svg"
set multiplot layout 3,1 margins 0.34,0.92,0.06,0.96 spacing 0.1
set style fill solid 0.8 noborder
set grid x
unset key

# horizontal bars from 0 to the ratio, the first line on top
set yrange [*:*] reverse
set offsets 0, graph 0.1, 0.5, 0.5
set xrange [0:*]
set ytics nomirror scale 0

set title "A key's own cost; clock read = 1, lower is better"
plot "own.dat" using ($2/2):0:($2/2):(0.35):ytic(1) with boxxyerror lc rgb "#4878a8", \
	"own.dat" using 2:0:3:4 with xerrorbars pt 0 lc rgb "black", \
	"own.dat" using 4:0:(sprintf("  %.1f", $2)) with labels left

set title "Orders/s over 0.5 ms each way, one client; identity + RETURNING = 1, higher is better"
plot "orders.dat" using ($2/2):0:($2/2):(0.35):ytic(1) with boxxyerror lc rgb "#589858", \
	"orders.dat" using 2:0:3:4 with xerrorbars pt 0 lc rgb "black", \
	"orders.dat" using 4:0:(sprintf("  %.2f", $2)) with labels left

unset offsets
set title "Keys/s, many a statement; one sequence = 1, higher is better"
set yrange [0:*] noreverse
set offsets 0, 0, graph 0.2, 0
set xrange [0.8:40]
set logscale x 2
set xtics (1, 2, 4, 8, 32)
set ytics auto
set xlabel "sessions"
set grid x y
set key inside top center horizontal
plot for [i = 0:3] "sessions.dat" index i using 1:2:3:4 with yerrorlines \
	title columnheader(1) lw 2 pt 7 ps 0.6
