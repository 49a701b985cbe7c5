-- One query for each of TPC-H's 22, with its joins, subqueries and aggregates, in our own words over tables of its kind.
-- Q1: aggregates of decimals by two keys
SELECT l_linestatus, l_returnflag, count(*) AS n, sum(l_quantity) AS quantity, avg(l_quantity) AS usual, avg(l_discount) AS cut,
  sum(l_extendedprice * (1 - l_discount)) AS net, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS gross
FROM lineitem WHERE l_shipdate <= DATE '1998-10-01' - INTERVAL 60 DAY GROUP BY 1, 2 ORDER BY 1, 2;
-- Q2: the cheapest offer of each part
SELECT p.p_partkey, s.s_name, s.s_acctbal, n.n_name FROM part p JOIN partsupp o ON o.ps_partkey = p.p_partkey
  JOIN supplier s ON s.s_suppkey = o.ps_suppkey JOIN nation n ON n.n_nationkey = s.s_nationkey JOIN region r ON r.r_regionkey = n.n_regionkey
WHERE p.p_type LIKE '%STEEL' AND r.r_name = 'ASIA' AND o.ps_supplycost = (SELECT min(o2.ps_supplycost) FROM partsupp o2
  JOIN supplier s2 ON s2.s_suppkey = o2.ps_suppkey JOIN nation n2 ON n2.n_nationkey = s2.s_nationkey
  JOIN region r2 ON r2.r_regionkey = n2.n_regionkey WHERE o2.ps_partkey = p.p_partkey AND r2.r_name = 'ASIA')
ORDER BY s.s_acctbal DESC, n.n_name, s.s_name, p.p_partkey LIMIT 50;
-- Q3: the most valuable open orders of a segment
SELECT o_orderkey, o_orderdate, sum(l_extendedprice * (1 - l_discount)) AS open_value FROM customer
  JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
WHERE c_mktsegment = 'MACHINERY' AND o_orderdate < DATE '1995-06-30' AND l_shipdate > DATE '1995-06-30'
GROUP BY o_orderkey, o_orderdate ORDER BY open_value DESC, o_orderdate, o_orderkey LIMIT 10;
-- Q4: orders with a late line, counted by priority
SELECT o_orderpriority, count(*) FROM orders o WHERE o_orderdate BETWEEN DATE '1993-01-01' AND DATE '1996-12-31'
  AND EXISTS (SELECT 1 FROM lineitem l WHERE l.l_orderkey = o.o_orderkey AND l.l_receiptdate > l.l_commitdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority;
-- Q5: local sales by nation
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS sold FROM region, nation, supplier, lineitem, orders, customer
WHERE r_regionkey = n_regionkey AND n_nationkey = s_nationkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey
  AND o_custkey = c_custkey AND c_nationkey = s_nationkey AND r_name = 'EUROPE'
  AND o_orderdate >= DATE '1993-01-01' AND o_orderdate < DATE '1993-01-01' + INTERVAL 4 YEAR GROUP BY n_name ORDER BY sold DESC;
-- Q6: what a filter of ranges leaves
SELECT sum(l_extendedprice * l_discount) AS given FROM lineitem
WHERE l_shipdate BETWEEN DATE '1993-01-01' AND DATE '1995-12-31' AND l_discount BETWEEN 0.05 - 0.02 AND 0.05 + 0.02 AND l_quantity < 30;
-- Q7: trade between two nations by year
SELECT t.a, t.b, t.y, sum(t.v) AS volume FROM (SELECT n1.n_name AS a, n2.n_name AS b, year(l_shipdate) AS y,
    l_extendedprice * (1 - l_discount) AS v FROM lineitem JOIN supplier ON s_suppkey = l_suppkey JOIN orders ON o_orderkey = l_orderkey
    JOIN customer ON c_custkey = o_custkey JOIN nation n1 ON n1.n_nationkey = s_nationkey JOIN nation n2 ON n2.n_nationkey = c_nationkey
  WHERE (n1.n_name = 'JAPAN' AND n2.n_name = 'BRAZIL') OR (n1.n_name = 'BRAZIL' AND n2.n_name = 'JAPAN')) t
GROUP BY t.a, t.b, t.y ORDER BY t.a, t.b, t.y;
-- Q8: a nation's share of sales by year
SELECT y, sum(CASE WHEN seller = 'CANADA' THEN v ELSE 0 END) / sum(v) AS part_of_all FROM (SELECT extract(YEAR FROM o_orderdate) AS y,
    n2.n_name AS seller, l_extendedprice * (1 - l_discount) AS v FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
  WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
    AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND s_nationkey = n2.n_nationkey AND p_type LIKE '%COPPER') f
GROUP BY y ORDER BY y;
-- Q9: profit by nation and year
SELECT who, y, sum(gain) AS profit FROM (SELECT n_name AS who, year(o_orderdate) AS y,
    l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS gain FROM lineitem JOIN part ON p_partkey = l_partkey
    JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey JOIN orders ON o_orderkey = l_orderkey
    JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey WHERE p_name LIKE '%forest%') g
GROUP BY who, y ORDER BY who, y DESC;
-- Q10: customers who returned the most
SELECT c_custkey, c_name, c_phone, n_name, sum(l_extendedprice * (1 - l_discount)) AS lost FROM customer
  JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey JOIN nation ON n_nationkey = c_nationkey
WHERE l_returnflag = 'R' AND o_orderdate >= DATE '1993-06-01' GROUP BY c_custkey, c_name, c_phone, n_name
ORDER BY lost DESC, c_custkey LIMIT 15;
-- Q11: stock worth more than a share of all
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS worth FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.0400 FROM partsupp) ORDER BY worth DESC;
-- Q12: urgent and other lines by way of shipping
SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS urgent,
  sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS others FROM lineitem
  JOIN orders ON o_orderkey = l_orderkey WHERE l_shipmode IN ('AIR', 'SHIP') AND l_shipdate < l_commitdate GROUP BY l_shipmode ORDER BY l_shipmode;
-- Q13: how many customers have how many orders
SELECT n, count(*) AS customers FROM (SELECT c_custkey, count(o_orderkey) FROM customer LEFT JOIN orders ON o_custkey = c_custkey
  AND o_comment NOT LIKE '%pending%requests%' GROUP BY c_custkey) AS t (c, n) GROUP BY n ORDER BY customers DESC, n DESC;
-- Q14: the share of a kind of parts, in percent
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'ECONOMY%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
  / sum(l_extendedprice * (1 - l_discount)) AS percent FROM lineitem JOIN part ON p_partkey = l_partkey WHERE year(l_shipdate) = 1995;
-- Q15: the suppliers that earn the most
WITH earned AS (SELECT l_suppkey AS who, sum(l_extendedprice * (1 - l_discount)) AS total FROM lineitem WHERE l_shipdate >= DATE '1995-01-01'
  GROUP BY l_suppkey) SELECT s_suppkey, s_name, total FROM supplier JOIN earned ON who = s_suppkey
WHERE total = (SELECT max(total) FROM earned) ORDER BY s_suppkey;
-- Q16: suppliers by kind of part, without those with complaints
SELECT p_brand, p_size, count(DISTINCT ps_suppkey) AS suppliers FROM partsupp JOIN part ON p_partkey = ps_partkey
WHERE p_brand <> 'Brand#12' AND p_type NOT LIKE 'PROMO%' AND p_size IN (3, 9, 14, 36, 49)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Complaints%')
GROUP BY p_brand, p_size ORDER BY suppliers DESC, p_brand, p_size;
-- Q17: what small orders of a part bring in a year
SELECT sum(l.l_extendedprice) / 5.0 AS yearly FROM lineitem l JOIN part p ON p.p_partkey = l.l_partkey WHERE p.p_brand = 'Brand#34'
  AND l.l_quantity < (SELECT 0.4 * avg(x.l_quantity) FROM lineitem x WHERE x.l_partkey = p.p_partkey);
-- Q18: large orders
SELECT c_name, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) FROM customer JOIN orders ON o_custkey = c_custkey
  JOIN lineitem ON l_orderkey = o_orderkey WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 200)
GROUP BY c_name, o_orderkey, o_orderdate, o_totalprice ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100;
-- Q19: a choice of conditions
SELECT sum(l_extendedprice * (1 - l_discount)) AS sold FROM lineitem, part WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'MAIL')
  AND ((p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX') AND l_quantity BETWEEN 5 AND 5 + 20)
    OR (p_brand = 'Brand#23' AND p_container IN ('MED BOX', 'MED BAG') AND l_quantity BETWEEN 10 AND 10 + 30)
    OR (p_brand = 'Brand#45' AND p_container IN ('LG CASE', 'LG PKG') AND p_size BETWEEN 1 AND 25));
-- Q20: suppliers with more of a part than they sold
SELECT s_name, s_address FROM supplier JOIN nation ON n_nationkey = s_nationkey WHERE n_name IN ('KENYA', 'INDIA', 'FRANCE', 'JAPAN')
  AND s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'antique%')
    AND ps_availqty > (SELECT 0.3 * sum(l_quantity) FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey)) ORDER BY s_name;
-- Q21: suppliers that alone kept an order waiting
SELECT s_name, count(*) AS waits FROM supplier JOIN lineitem a ON a.l_suppkey = s_suppkey JOIN orders ON o_orderkey = a.l_orderkey
WHERE o_orderstatus = 'O' AND a.l_receiptdate > a.l_commitdate
  AND EXISTS (SELECT * FROM lineitem b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey <> a.l_suppkey)
  AND NOT EXISTS (SELECT * FROM lineitem c WHERE c.l_orderkey = a.l_orderkey AND c.l_suppkey <> a.l_suppkey AND c.l_receiptdate > c.l_commitdate)
GROUP BY s_name ORDER BY waits DESC, s_name LIMIT 100;
-- Q22: customers with money and without orders, by country code
SELECT code, count(*) AS customers, sum(c_acctbal) AS money FROM (SELECT substring(c_phone, 1, 2) AS code, c_acctbal FROM customer c
  WHERE substring(c_phone, 1, 2) IN ('13', '29', '31', '11') AND c_acctbal > (SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0.00)
    AND NOT EXISTS (SELECT * FROM orders o WHERE o.o_custkey = c.c_custkey AND o.o_orderstatus = 'F')) t GROUP BY code ORDER BY code
