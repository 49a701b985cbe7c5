-- What analysts' random queries seldom have, over their tables.
SELECT CAST(shop AS DECIMAL(12, 2)), opened, area, country AS c4 FROM shops;
SELECT id, price FROM sales WHERE price < 1.0000000000000000000000000000000000001 OR price = 1.00;
SELECT count(*) FROM sales WHERE rate <= 1.0000000000000000000000000000000000001;
SELECT x.id, y.name FROM (sales) x JOIN ((items i)) y ON x.item = y.item;
SELECT /*+ BROADCAST(i) */ s.id FROM sales s JOIN items i ON s.item = i.item;
SELECT -id AS amount FROM sales WHERE id > 40;
SELECT -id AS id FROM sales ORDER BY id + 0 LIMIT 2;
SELECT count(DISTINCT status, shop) FROM sales;
SELECT 2 UNION ALL SELECT price FROM sales WHERE id = 2;
SELECT round(2.675D, 2) a, round(-2.5D, 0) b, round(1.005, 2) FROM items WHERE item = 1;
SELECT id + 1 AS a, a * 2 AS b FROM sales WHERE id = 2;
SELECT weight + 0 AS a, count(*) FROM sales GROUP BY weight + 0 ORDER BY a;
SELECT price / 3, price * price, price % 7, avg(price) OVER (PARTITION BY shop) FROM sales WHERE id < 30;
SELECT id FROM sales NATURAL JOIN items;
SELECT * FROM sales s JOIN items i USING (item);
SELECT item, i.name FROM sales FULL JOIN items i USING (item);
SELECT count(*) FROM sales WHERE id > 900 GROUP BY CUBE (status, shop);
SELECT status, grouping(status), count(*) FROM sales GROUP BY GROUPING SETS ((status), ());
SELECT stddev(qty), variance(price), count_if(paid), bool_or(paid), bool_and(paid) FROM sales;
SELECT floor(price), ceil(weight), floor(qty), sign(qty), sqrt(area) FROM sales s JOIN shops h ON s.shop = h.shop WHERE weight > 0;
SELECT hour(at), minute(local), second(at), CAST(at AS DATE) FROM sales;
SELECT date_trunc('MONTH', day) AS m, count(*) FROM sales GROUP BY 1;
SELECT pmod(qty, 3), qty div 2, startswith(note, 'x'), endswith(note, 'f'), contains(note, 'a'), rpad(note, 3, 'z'), repeat(status, 2), concat_ws('-', status, note), right(note, 2) FROM sales;
SELECT note FROM sales WHERE note LIKE 'a\\_b' OR note LIKE '50!% off' ESCAPE '!';
SELECT percent_rank() OVER (ORDER BY id), cume_dist() OVER (ORDER BY id), ntile(4) OVER (ORDER BY id), lag(qty, 2, 0) OVER (ORDER BY id) FROM sales;
SELECT CASE status WHEN 'NEW' THEN 1 WHEN 'PAID' THEN 2.5 ELSE 0 END AS c, nvl2(note, 1, 2), ifnull(qty, 0), isnull(qty), nvl(note, 'x') FROM sales;
SELECT status AS s, sum(price) AS p FROM sales GROUP BY s HAVING p > 0 ORDER BY p DESC;
SELECT shop, sum(sum(price)) OVER (ORDER BY shop) AS t FROM sales GROUP BY shop
