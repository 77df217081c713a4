CREATE DATABASE inventory CHARACTER SET utf8mb4; USE inventory;
CREATE TABLE products (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(255), description TEXT, weight FLOAT);
CREATE TABLE kinds (a BIGINT UNSIGNED, b VARCHAR(10), small TINYINT, flag TINYINT(1), bit1 BIT(1), num DECIMAL(20,6), d DOUBLE, f FLOAT,
  day DATE, t TIME(3), dt DATETIME(6), ts TIMESTAMP(3) NULL, bin VARBINARY(8), bl BLOB, e ENUM('x','y'), s SET('a','b','c'), PRIMARY KEY (a, b)) CHARACTER SET utf8mb4;
INSERT INTO products VALUES (111,'scooter','Big 2-wheel scooter',5.15),(112,'Rad ä 漢 😀',NULL,NULL);
UPDATE products SET weight=5.18 WHERE id=111;
UPDATE products SET id=211 WHERE id=111;
UPDATE products SET name='', description='a "quote" \\ and \n line' WHERE id=112;
INSERT INTO kinds VALUES (18446744073709551615,'k',-128,1,b'1',12345678901234.123456,0.1,16777216,'2026-02-28','23:59:59.123','2026-11-20 10:00:00.123456','2026-11-20 10:00:00.123',x'00ff80',x'0001fe','y','a,c');
INSERT INTO kinds (a,b) VALUES (1,'null');
UPDATE kinds SET flag=0, num=-0.000001, e=NULL, bl=x'c3a4' WHERE a=18446744073709551615;
ALTER TABLE products ADD COLUMN note VARCHAR(20);
DELETE FROM products WHERE id=112;
REPLACE INTO kinds (a,b,small) VALUES (1,'null',7);
TRUNCATE TABLE kinds;
INSERT INTO products VALUES (300,'last','x',1,'n');
