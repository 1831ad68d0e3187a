// SPDX-License-Identifier: Apache-2.0
// scale(a, c, factor, n): c = factor * a, of 32-bit numbers. Registers: a, bytes of a, c, bytes of c, factor, n.
module scale (
	input clk, input rst,
	input wr_valid, input [4:0] wr_reg, input [63:0] wr_data,
	input [4:0] rd_reg, output [63:0] rd_data,
	output req, output we, output [63:0] addr, output [511:0] data, output [15:0] lanes,
	input taken, input answer, input [511:0] answer_data
);
	localparam IDLE = 0, READ = 1, WAIT = 2, WRITE = 3, END = 4;

	wire [64*6-1:0] args;
	wire start;
	wire [63:0] a = args[0 +: 64], c = args[128 +: 64], n = args[320 +: 64];
	wire [31:0] factor = args[256 +: 32];
	wire fits = n < 64'h10000000 && n * 4 <= args[64 +: 64] && n * 4 <= args[192 +: 64];
	reg [2:0] state;
	reg bad;
	reg [63:0] at, left;
	reg [511:0] product;
	integer i;

	control #(.NARGS(6)) window (
		.clk(clk), .rst(rst), .wr_valid(wr_valid), .wr_reg(wr_reg), .wr_data(wr_data), .rd_reg(rd_reg), .rd_data(rd_data),
		.args(args), .start(start), .finished(state == END), .refused(bad));

	assign req = state == READ || state == WRITE;
	assign we = state == WRITE;
	assign addr = at + (state == READ ? a : c);
	assign data = product;
	assign lanes = left >= 16 ? 16'hffff : (16'h1 << left[3:0]) - 16'h1;

	always @(posedge clk) begin
		if (rst) begin
			state <= IDLE;
			bad <= 0;
		end else case (state)
		IDLE: if (start) begin
			at <= 0;
			left <= n;
			bad <= !fits;
			state <= fits && n != 0 ? READ : END;
		end
		READ: if (taken) state <= WAIT;
		WAIT: if (answer) begin
			for (i = 0; i < 16; i = i + 1) product[32*i +: 32] <= answer_data[32*i +: 32] * factor;
			state <= WRITE;
		end
		WRITE: if (taken) begin
			at <= at + 64;
			left <= left - 16;
			state <= left > 16 ? READ : END;
		end
		default: state <= IDLE;
		endcase
	end
endmodule
