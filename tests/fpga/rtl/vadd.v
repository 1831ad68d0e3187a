// SPDX-License-Identifier: Apache-2.0
// vadd(a, b, c, n): c = a + b, of 32-bit numbers, sixteen a beat. Registers: a, bytes of a, b, bytes of b, c, bytes of c, n.
module vadd (
	input clk, input rst,
	input wr_valid, input [4:0] wr_reg, input [63:0] wr_data,
	input [4:0] rd_reg, output [63:0] rd_data,
	output req, output we, output [63:0] addr, output [511:0] data, output [15:0] lanes,
	input taken, input answer, input [511:0] answer_data
);
	localparam IDLE = 0, READ_A = 1, WAIT_A = 2, READ_B = 3, WAIT_B = 4, WRITE = 5, END = 6;

	wire [64*7-1:0] args;
	wire start;
	wire [63:0] a = args[0 +: 64], b = args[128 +: 64], c = args[256 +: 64], n = args[384 +: 64];
	wire fits = n < 64'h10000000 && n * 4 <= args[64 +: 64] && n * 4 <= args[192 +: 64] && n * 4 <= args[320 +: 64];
	reg [2:0] state;
	reg bad;
	reg [63:0] at, left;
	reg [511:0] first, sum;
	integer i;

	control #(.NARGS(7)) window (
		.clk(clk), .rst(rst), .wr_valid(wr_valid), .wr_reg(wr_reg), .wr_data(wr_data), .rd_reg(rd_reg), .rd_data(rd_data),
		.args(args), .start(start), .finished(state == END), .refused(bad));

	assign req = state == READ_A || state == READ_B || state == WRITE;
	assign we = state == WRITE;
	assign addr = at + (state == READ_A ? a : state == READ_B ? b : c);
	assign data = sum;
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
			state <= fits && n != 0 ? READ_A : END;
		end
		READ_A: if (taken) state <= WAIT_A;
		WAIT_A: if (answer) begin
			first <= answer_data;
			state <= READ_B;
		end
		READ_B: if (taken) state <= WAIT_B;
		WAIT_B: if (answer) begin
			for (i = 0; i < 16; i = i + 1) sum[32*i +: 32] <= first[32*i +: 32] + answer_data[32*i +: 32];
			state <= WRITE;
		end
		WRITE: if (taken) begin
			at <= at + 64;
			left <= left - 16;
			state <= left > 16 ? READ_A : END;
		end
		default: state <= IDLE;
		endcase
	end
endmodule
