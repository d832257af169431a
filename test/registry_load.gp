# registry_load.gp - registry_load.svg: what single calls cost Redis, against the
# number of servers.  "data" is the file of test/registry_load --plot: a number of
# servers, and the ms of a claim, a mark and a page of snowid_claims().

set terminal svg noenhanced size 640,320 font "sans-serif,12" background "white"
set output "test/registry_load.svg"
set title "Redis' processor time of a call, ms, against the number of servers"
set logscale x 4
set xrange [12:22000]
set yrange [0:*]
set xtics (16, 64, 256, "1,024" 1024, "4,096" 4096, "16,384" 16384)
set grid
set key left top
plot data using 1:2 with linespoints lw 2 pt 7 ps 0.6 title "a claim of a new server", \
	data using 1:3 with linespoints lw 2 pt 7 ps 0.6 title "a mark", \
	data using 1:4 with linespoints lw 2 pt 7 ps 0.6 title "a page of snowid_claims(), 20 rows"
